"""How weights and tokenizers get from a file to the engine (given code; nothing here is for you to write).

`weights.py` and `tokenizer.py` are the doors. Behind them, one file for each concept:

- `errors.py`       the one exception that all of this raises, and the door by which any other leaves
- `files.py`, `fields.py`   opening files, and reading values from them: nothing that they say is believed unchecked
- `locate.py`       from a name, a path or a hub id to a file or a folder on this machine
- `layout.py`       which tensors a model has, their shapes, and what they are called elsewhere
- `sources.py`      reading one named tensor from a GGUF file or from safetensors
- `gguf_file.py`    the GGUF format itself: metadata, and where each tensor lies
- `gguf_config.py`, `hf_config.py`   what each format says about the model, as a `ModelConfig`
- `rope_scaling.py` how Llama 3.1 and later divide their rotary frequencies
- `quantized.py`    a GGUF file's 4-bit blocks as a `QuantizedTensor`
- `convert.py`      from a source's tensors to ours: fuse, cast or quantize
- `cache.py`        the converted tensors, kept for the next time
- `aligned_safetensors.py`   writing them so that they can be used straight from the file
- `gguf_tokenizer.py`, `hf_tokenizer.py`   a tokenizer from each format
- `chat_template.py`   a conversation, written out as the model's own template says
- `apart.py`        running what a model brings along in a process of its own: `template_program.py` writes
  conversations there, and `tokenizer_trial.py` tries a tokenizer out
"""
