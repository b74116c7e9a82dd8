"""Makes a Llama of random numbers with two adapters, small enough for a CPU.   make_model.py DIR"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY = 512
HIDDEN, LAYERS, HEADS, KV_HEADS, INNER = 128, 2, 4, 2, 256
HEAD = HIDDEN // HEADS  # attention on CPUs wants at least 32
POSITIONS = 2048
ADAPTER_RANK = 8
WORDS = ("bus engine token queue prefix cache decode prefill latency batch server gauge counter histogram node agent hub "
         "view source ring mark record beat sleep").split()  # fmt: skip
TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"


def write_json(path: Path, content: dict[str, object]) -> None:
    path.write_text(json.dumps(content, indent=1))


def make_tokenizer(folder: Path) -> None:
    chooser = random.Random(1)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=["<s>", "</s>", "<pad>"],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)  # fmt: skip
    tokenizer.train_from_iterator([" ".join(chooser.choices(WORDS, k=40)) for _ in range(300)], trainer)
    missing = VOCABULARY - tokenizer.get_vocab_size()  # whatever the model samples must decode
    tokenizer.add_tokens([f"<unused{n}>" for n in range(missing)])
    tokenizer.save(str(folder / "tokenizer.json"))
    write_json(folder / "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": POSITIONS, "bos_token": "<s>", "eos_token": "</s>",
        "pad_token": "<pad>", "chat_template": TEMPLATE})  # fmt: skip


def make_weights() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)

    def numbers(*shape: int, scale: float = 0.08) -> torch.Tensor:
        return (torch.randn(*shape, generator=generator) * scale).to(torch.bfloat16)

    ones = torch.ones(HIDDEN, dtype=torch.bfloat16)
    weights = {"model.embed_tokens.weight": numbers(VOCABULARY, HIDDEN, scale=0.5), "lm_head.weight": numbers(VOCABULARY, HIDDEN, scale=0.25),
               "model.norm.weight": ones.clone()}  # fmt: skip
    shapes = {"self_attn.q_proj": (HEADS * HEAD, HIDDEN), "self_attn.k_proj": (KV_HEADS * HEAD, HIDDEN),
              "self_attn.v_proj": (KV_HEADS * HEAD, HIDDEN), "self_attn.o_proj": (HIDDEN, HEADS * HEAD),
              "mlp.gate_proj": (INNER, HIDDEN), "mlp.up_proj": (INNER, HIDDEN), "mlp.down_proj": (HIDDEN, INNER)}  # fmt: skip
    for layer in range(LAYERS):
        for name, shape in shapes.items():
            weights[f"model.layers.{layer}.{name}.weight"] = numbers(*shape)
        for name in ("input_layernorm", "post_attention_layernorm"):
            weights[f"model.layers.{layer}.{name}.weight"] = ones.clone()
    return weights


def make_model(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    make_tokenizer(folder)
    write_json(folder / "config.json", {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN, "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD, "intermediate_size": INNER,
        "vocab_size": VOCABULARY, "max_position_embeddings": POSITIONS, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "bfloat16", "bos_token_id": 0, "eos_token_id": 1,
        "pad_token_id": 2, "attention_bias": False, "mlp_bias": False})  # fmt: skip
    write_json(folder / "generation_config.json", {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2})
    save_file(make_weights(), str(folder / "model.safetensors"), metadata={"format": "pt"})


def make_adapter(folder: Path, base: Path, seed: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "adapter_config.json", {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": str(base), "r": ADAPTER_RANK,
        "lora_alpha": 16, "lora_dropout": 0.0, "bias": "none", "target_modules": ["q_proj", "v_proj"],
        "inference_mode": True})  # fmt: skip
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for layer in range(LAYERS):
        for name, size in (("q_proj", HEADS * HEAD), ("v_proj", KV_HEADS * HEAD)):
            prefix = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            for part, shape in (("lora_A", (ADAPTER_RANK, HIDDEN)), ("lora_B", (size, ADAPTER_RANK))):
                weights[f"{prefix}.{part}.weight"] = (torch.randn(*shape, generator=generator) * 0.3).to(torch.bfloat16)
    save_file(weights, str(folder / "adapter_model.safetensors"))


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    make_model(folder / "tiny")
    for number in (1, 2):
        make_adapter(folder / f"adapter{number}", folder / "tiny", number)


if __name__ == "__main__":
    main()
