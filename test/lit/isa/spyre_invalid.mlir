// RUN: ktir-opt %s --split-input-file --verify-diagnostics

spyre.program "p" {
  spyre.kernel "k" cores = 2 {
    spyre.unit MNIL {
      // expected-error@+1 {{'spyre.mm' op is not well-formed: 'mm' cannot run on MNIL}}
      spyre.mm rows = 1
    }
  }
}

// -----

spyre.program "p" {
  spyre.kernel "k" cores = 2 {
    spyre.unit MNIL {
      // expected-error@+1 {{'spyre.fill' op is not well-formed: 'fill' expects lx to name a descriptor of the kernel, which has none}}
      spyre.fill lx = 0, value = 1.0
    }
  }
}

// -----

spyre.program "p" {
  // expected-error@+1 {{'spyre.kernel' op is not well-formed: table 0 expects 2 values, one per core, but got 3}}
  spyre.kernel "k" cores = 2 {
    spyre.table [1, 2, 3]
  }
}

// -----

spyre.program "p" {
  spyre.kernel "k" cores = 2 {
    // expected-error@+1 {{'spyre.descriptor' op is not well-formed: a ddr descriptor needs an argument}}
    spyre.descriptor ddr element_bytes = 2 extent = [4] stride = [128]
    // expected-error@+1 {{'spyre.descriptor' op is not well-formed: bound 0: dim 3 is not one of the 1 inner dims}}
    spyre.descriptor lx element_bytes = 2 extent = [4] stride = [128] bounds = [#spyre.bound<limit = 1, dim = 3>]
  }
}

// -----

spyre.program "p" {
  spyre.kernel "k" cores = 2 {
    spyre.unit PT {
    }
    // expected-error@+1 {{'spyre.unit' op is the second PT of its kernel}}
    spyre.unit PT {
    }
  }
}

// -----

spyre.program "p" {
  // expected-error@+1 {{'spyre.halt' op does not belong into 'spyre.program'}}
  spyre.halt
}

// -----

spyre.program "p" {
  spyre.kernel "k" cores = 1 {
    spyre.unit SFP {
      spyre.rep groups = 1, sticks = 1 start {
      } each {
        // expected-error@+1 {{'spyre.loop' op does not belong into 'spyre.rep'}}
        spyre.loop trips = 1, level = 0, region = 0 {
        }
      } end {
      }
    }
  }
}

// -----

spyre.program "p" {
  spyre.kernel "k" cores = 1 {
    spyre.unit LXLU {
      // expected-error@+1 {{'spyre.wait' op is not well-formed: sender expects one of MNIL, MNIS, LXLU, PT, SFP, LXSU, but got 'XX'}}
      spyre.wait token = 0, sender = XX, count = 1
    }
  }
}

// -----

spyre.program "p" {
  spyre.kernel "k" cores = 1 {
    // expected-error@+1 {{'spyre.unit' op expects unit to be one of MNIL, MNIS, LXLU, PT, SFP, LXSU, but got 'FOO'}}
    spyre.unit FOO {
    }
  }
}

// -----

spyre.program "p" {
  spyre.kernel "k" cores = 1 {
    spyre.unit LXLU {
      // expected-error@+1 {{'spyre.wait' op requires attribute 'token'}}
      "spyre.wait"() {sender = "MNIL", count = 1 : i64} : () -> ()
    }
  }
}

// -----

spyre.program "p" {
  spyre.kernel "k" cores = 1 {
    spyre.unit MNIL {
      // expected-error@+1 {{expected number}}
      spyre.fill lx = 0, value = [1]
    }
  }
}
