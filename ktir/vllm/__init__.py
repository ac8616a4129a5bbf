"""vLLM on the emulated card: an out-of-tree platform for vLLM 0.27.1 (`make vllm`, docs/serving.md).

vLLM schedules, samples and serves; the model, its attention and the writes to its cache are programs of the chip. Names of vLLM that are
not its public interface stand in `upstream` alone.
"""


def register() -> str:
    """The entry point `vllm.platform_plugins`: the platform's qualified name. Imports nothing of vLLM, which is importing itself."""
    return "ktir.vllm.platform.SpyrePlatform"
