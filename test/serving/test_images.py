# pyright: reportMissingImports=false, reportOptionalMemberAccess=false
"""Prompts with images through vLLM's Qwen2.5-VL against transformers: the tower and the model are programs of the chip."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
import transformers
from oracle import Oracle
from PIL import Image
from test_generate import engine, greedy, nothing_compiled, runner
from tiny import PATCH, make
from vllm import LLM
from vllm.distributed import cleanup_dist_env_and_memory

TOKENS = 32
SIZES = [(5, 6), (8, 4), (2, 2), (3, 9)]
"""Height and width of images in pairs of patches, as the model merges them; all are resized to even numbers of patches."""
PLACE = "<|vision_start|><|image_pad|><|vision_end|>"


def picture(draw: np.random.Generator, height: int, width: int) -> Image.Image:
    """Blocks of colour as large as a patch, and noise."""
    blocks = draw.integers(0, 200, (2 * height, 2 * width, 3)).repeat(PATCH, 0).repeat(PATCH, 1)
    return Image.fromarray((blocks + draw.integers(0, 55, blocks.shape)).astype(np.uint8))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, LLM]]:
    folder = make("qwen2_5_vl", tmp_path_factory.mktemp("model"))
    yield folder, engine(folder)
    cleanup_dist_env_and_memory()


def cases(folder: str) -> list[tuple[str, list[Image.Image], list[int]]]:
    """Texts with one image each, and one with two, and the tokens that follow without doubt."""
    draw, oracle = np.random.default_rng(0), Oracle(folder)
    processor = transformers.AutoProcessor.from_pretrained(folder)
    found = []
    for sizes in [*([size] for size in SIZES), SIZES[2:4]]:
        for _ in range(40):
            images = [picture(draw, *size) for size in sizes]
            text = f"def f{draw.integers(100)}(" + f"{PLACE}x{draw.integers(100)}" * len(sizes)
            given = processor(text=[text], images=images, return_tensors="pt")
            shown = {name: given[name] for name in ("pixel_values", "image_grid_thw", "mm_token_type_ids")}
            tokens, fair = oracle.tokens(given.input_ids.tolist(), TOKENS, **shown)
            if fair[0]:
                found.append((text, images, tokens[0]))
                break
    assert len(found) == len(SIZES) + 1
    return found


def asked(text: str, images: list[Image.Image]) -> dict[str, object]:
    return {"prompt": text, "multi_modal_data": {"image": images}}


def test_tokens_after_images_are_those_of_transformers(served: tuple[str, LLM]) -> None:
    """All at once: several images are encoded by one program, and prompts come in chunks."""
    folder, llm = served
    expected = cases(folder)
    encoder = runner(llm).encoder_cudagraph_manager
    with nothing_compiled(llm):
        found = llm.generate([asked(text, images) for text, images, _ in expected], greedy(TOKENS), use_tqdm=False)
    assert [list(out.outputs[0].token_ids) for out in found] == [tokens for _, _, tokens in expected]
    assert encoder.graph_hits == len(SIZES) + 2
    assert encoder.graph_misses == 0
    other = llm.generate([asked(expected[0][0], [expected[1][1][0].resize(expected[0][1][0].size)])], greedy(TOKENS), use_tqdm=False)
    assert list(other[0].outputs[0].token_ids) != expected[0][2]  # it looks at the image


@torch.inference_mode()
def test_the_tower_is_that_of_transformers(served: tuple[str, LLM]) -> None:
    """What it makes of two images at once, beside float64: no element is more than four times as far off as PyTorch's float16 errs."""
    folder, llm = served
    draw = np.random.default_rng(1)
    processor = transformers.AutoProcessor.from_pretrained(folder)
    given = processor.image_processor(images=[picture(draw, 3, 7), picture(draw, 6, 6)], return_tensors="pt")
    pixels, grid = given["pixel_values"], given["image_grid_thw"]
    load = transformers.Qwen2_5_VLForConditionalGeneration.from_pretrained
    half, wide = (
        load(folder, dtype=dtype).eval().model.visual(pixels.to(dtype), grid).pooler_output.double()
        for dtype in (torch.float16, torch.float64)
    )
    found = torch.cat(runner(llm).encoder_cudagraph_manager.execute({"pixel_values": pixels.half(), "image_grid_thw": grid}))
    assert found.shape == wide.shape
    assert (found.double() - wide).abs().max() < 4 * (half - wide).abs().max()
