// The plan writes what lies in the stick at each op (the result last), its kernel, and per kernel how it is divided.
// RUN: ktir-opt %S/../../lowering/inductor/softmax.mlir --cse --ktir-break-views --ktir-plan='cores=4' | FileCheck %s --check-prefix=PLAN
// The passes after it do what it says: the division of the plan is kept by a pass that has other cores.
// RUN: ktir-opt %S/../../lowering/inductor/softmax.mlir --cse --ktir-break-views --ktir-plan='cores=4' --ktir-assign-layouts --ktir-form-kernels | FileCheck %s --check-prefix=FORMED
// RUN: ktir-opt %S/../../lowering/inductor/softmax.mlir --cse --ktir-break-views --ktir-plan='cores=4' --ktir-assign-layouts --ktir-form-kernels --ktir-divide-work | FileCheck %s --check-prefix=DIVIDED
// A division for more cores than there are is not followed.
// RUN: ktir-opt %S/../../lowering/inductor/softmax.mlir --cse --ktir-break-views --ktir-plan='cores=4' --ktir-assign-layouts --ktir-form-kernels --ktir-divide-work='cores=2' --remarks 2>&1 | FileCheck %s --check-prefix=FEWER

// PLAN: func.func @{{.*}} attributes {ktir.plan = [{columns = 0 : i64, work = #ktir.work<splits = [1, 4, 1], tile = [1, {{[0-9]+}}, 64]>}]}
// PLAN: linalg.generic {{.*}}ktir.kernel = 0 : i64, ktir.stick = array<i64: 1, -1>
// FORMED: func.func @{{.*}} attributes {ktir.plan = {columns = 0 : i64, work = #ktir.work<splits = [1, 4, 1],
// FORMED-NOT: ktir.kernel
// DIVIDED: grid = [4]
// DIVIDED-NOT: ktir.plan
// FEWER: is not divided as planned
// FEWER: grid = [2]
