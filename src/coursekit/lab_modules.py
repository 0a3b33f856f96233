"""What `lab` opens, for editors and type checkers alone: from `lab.attention.softmax` in a test an editor leads to
the learner's own `softmax`. At run time these classes are empty, and the lab imports a module when it is touched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING


class Kernels:
    if TYPE_CHECKING:
        from tiny_llm.kernels import (
            compiling,
            compiling_triton,
            decode_attention,
            decode_attention_cpu,
            kept,
            matmul_backends,
            paged_attention_auto,
            paged_attention_cpu,
            paged_attention_triton,
            quantized_matmul_cpu,
            quantized_matmul_torch,
        )
        from tiny_llm_mlx.kernels import (
            decode_attention_metal,
            metal,
            paged_attention_metal,
            paged_attention_tiles_metal,
            quantized_matmul_metal,
        )


class Loading:
    if TYPE_CHECKING:
        from tiny_llm.loading import (
            aligned_safetensors,
            apart,
            cache,
            chat_template,
            convert,
            errors,
            fields,
            files,
            gguf_config,
            gguf_file,
            gguf_tokenizer,
            hf_config,
            hf_tokenizer,
            layout,
            locate,
            models,
            quantized,
            rope_scaling,
            sources,
            template_program,
            tokenizer_parts,
            tokenizer_trial,
        )


class Paged:
    if TYPE_CHECKING:
        from tiny_llm.paged import (
            allocator,
            attention,
            attention_backends,
            batch,
            limits,
            metadata,
            model_runner,
            paged_cache,
            places,
            pool,
            running,
            sequence,
            tables,
        )


class Prefix:
    if TYPE_CHECKING:
        from tiny_llm.prefix import (
            check_trie,
            page_cache,
            trie_cache,
        )


class Protocol:
    if TYPE_CHECKING:
        from tiny_llm.ragged.protocol import (
            tiny_llm_pb2,
            tiny_llm_pb2_grpc,
        )


class Ragged:
    if TYPE_CHECKING:
        from tiny_llm.ragged import (
            answer,
            banker,
            batch,
            batcher,
            decode_state,
            errors,
            grpc_door,
            grpc_server,
            grpc_service,
            metrics,
            open_files,
            sampling_state,
            ticket,
        )

        protocol: Protocol


class Documents:
    if TYPE_CHECKING:
        from tiny_llm.documents import (
            attention,
            batch,
            bundle,
            join,
            mask,
            oracle,
            page_cache,
            past,
            positions,
            prompt,
            request,
            runner,
            scheduler,
        )


class Engine:
    if TYPE_CHECKING:
        from tiny_llm.engine import (
            async_llm,
            batch,
            completion,
            generation,
            limits,
            llm,
            logprobs,
            make_batch,
            output,
            params,
            penalties,
            prompts,
            request,
            step_sampler,
            stops,
        )


class Server:
    if TYPE_CHECKING:
        from tiny_llm.server import (
            answering,
            answers,
            app,
            asking,
            errors,
            fields,
            guard,
            logprobs,
            metrics,
            protocol,
            run,
            settings,
            streaming,
        )


class Scheduling:
    if TYPE_CHECKING:
        from tiny_llm.scheduling import (
            batch,
            block_tables,
            fairness,
            levels,
            padded,
            preemption,
            scheduler,
            standing,
        )


class Fast:
    if TYPE_CHECKING:
        from tiny_llm.fast import (
            accelerate,
            attend,
            block8,
            choice,
            compiled_tiles,
            compiled_vectors,
            compiling,
            cuda,
            exponential,
            float_block,
            float_model,
            float_rows,
            forms,
            instructions,
            llvm_code,
            loading,
            measuring,
            multiply,
            online_softmax,
            packed,
            page_tiles,
            parts,
            registers,
            rooms,
            rows8,
            small,
            table8,
            threads,
            tiled_attention,
            tiles,
            vectors,
            weights8,
        )


class Modules:
    """The modules of `tiny_llm` as attributes."""

    if TYPE_CHECKING:
        from tiny_llm import (
            arrays,
            attention,
            batch,
            cache_folder,
            config,
            engine_core,
            flash_attention,
            fused_kv_cache,
            generate,
            kv_cache,
            layers,
            model,
            named_tensors,
            positional_encoding,
            quantize,
            request,
            sampler,
            sampling_params,
            static_batch,
            tokenizer,
            weights,
        )
        from tiny_llm_mlx import packed_matmul

        documents: Documents
        engine: Engine
        fast: Fast
        kernels: Kernels
        loading: Loading
        paged: Paged
        prefix: Prefix
        ragged: Ragged
        scheduling: Scheduling
        server: Server
