#!/usr/bin/env python3
"""Packs small random weights the way quantisers do, with what they mean, into tests/data/quantized.

Plain Python, so that nothing is shared with the code under test or with the quantisers' libraries: codes are drawn,
packed bit by bit as the format's documentation says, and dequantised in F32 with one rounding per operation. Each
directory is a checkpoint (config.json as the tool writes it, model.safetensors) with expected.json: per module its
shape, the FNV-1a hash of its dequantised F32 rows, the first values, and the text that names its format. Directories
whose expected.json says "model" are whole llamas.

usage: make_quantized.py OUT_DIR     (fixed seed: the same bytes every time)
"""
import json
import math
import os
import random
import struct
import sys


# ---- numbers ----

def f32(x):
    return struct.unpack('<f', struct.pack('<f', x))[0]


def bits_of(x):
    return struct.unpack('<I', struct.pack('<f', x))[0]


def bf16_code(x):
    u = bits_of(x)
    return ((u + 0x7fff + (u >> 16 & 1)) >> 16) & 0xffff


def bf16_value(code):
    return struct.unpack('<f', struct.pack('<I', code << 16))[0]


def f16_code(x):
    return struct.unpack('<H', struct.pack('<e', x))[0]


def f16_value(code):
    return struct.unpack('<e', struct.pack('<H', code))[0]


def e4m3_value(code):
    exponent, fraction = code >> 3 & 15, code & 7
    magnitude = math.ldexp(fraction, -9) if exponent == 0 else math.ldexp(8 + fraction, exponent - 10)
    return -magnitude if code & 128 else magnitude


def e5m2_value(code):
    return f16_value(code << 8)


def e2m1_value(code):
    magnitude = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0][code & 7]
    return -magnitude if code & 8 else magnitude


def e8m0_value(code):
    return math.ldexp(1.0, code - 127)


FLOATS = {'F32': (4, lambda x: struct.pack('<f', x), f32),
          'BF16': (2, lambda x: struct.pack('<H', bf16_code(x)), lambda x: bf16_value(bf16_code(x))),
          'F16': (2, lambda x: struct.pack('<e', x), lambda x: f16_value(f16_code(x)))}


# ---- files ----

class Checkpoint:
    def __init__(self, root, name, config, seed, model=False):
        self.directory = os.path.join(root, name)
        self.config, self.tensors, self.modules = config, [], []
        self.random, self.model, self.files = random.Random(seed), model, {}

    def add(self, name, dtype, shape, data):
        assert all(name != t[0] for t in self.tensors), name
        self.tensors.append((name, dtype, list(shape), bytes(data)))

    def floats(self, name, dtype, shape, values):
        self.add(name, dtype, shape, b''.join(FLOATS[dtype][1](v) for v in values))

    def expect(self, name, rows, text, **more):
        data = b''.join(struct.pack('<f', v) for row in rows for v in row)
        h = 0xcbf29ce484222325
        for byte in data:
            h = (h ^ byte) * 0x100000001b3 & 0xffffffffffffffff
        self.modules.append(dict(name=name, n_out=len(rows), n_in=len(rows[0]), format=text, fnv='%016x' % h,
                                 first=rows[0][:4], **more))

    def write(self):
        os.makedirs(self.directory, exist_ok=True)
        header, at = {'__metadata__': {'format': 'pt'}}, 0
        for name, dtype, shape, data in self.tensors:
            header[name] = {'dtype': dtype, 'shape': shape, 'data_offsets': [at, at + len(data)]}
            at += len(data)
        text = json.dumps(header, separators=(',', ':')).encode()
        text += b' ' * (-len(text) % 8)
        with open(os.path.join(self.directory, 'model.safetensors'), 'wb') as f:
            f.write(struct.pack('<Q', len(text)) + text + b''.join(t[3] for t in self.tensors))
        self.files['config.json'] = self.config
        self.files['expected.json'] = {'model': self.model, 'modules': self.modules}
        for name, value in self.files.items():
            with open(os.path.join(self.directory, name), 'w') as f:
                modules = value.pop('modules', [])
                text = json.dumps(value)
                if modules:  # one line each
                    text = text[:-1] + ', "modules": [\n' + ',\n'.join(json.dumps(m) for m in modules) + ']}'
                f.write(text + '\n')


# ---- packing ----

def pack_words(codes, bits, padded=False):
    """Unsigned fields into 32-bit words, lowest first."""
    if padded:
        per = 32 // bits
        return [sum(c << (bits * i) for i, c in enumerate(codes[at:at + per])) for at in range(0, len(codes), per)]
    whole = sum(c << (bits * i) for i, c in enumerate(codes))
    return [whole >> (32 * i) & 0xffffffff for i in range((len(codes) * bits + 31) // 32)]


def words_bytes(words):
    return b''.join(struct.pack('<I', w) for w in words)


def transpose(rows):
    return [list(column) for column in zip(*rows)]


def bell(rng, bits):
    """A code of an unsigned integer format, gathered around the middle."""
    top = (1 << bits) - 1
    return min(top, max(0, round(rng.gauss((top + 1) / 2, (top + 1) / 6))))


def positive(rng, dtype):
    return FLOATS[dtype][2](rng.uniform(0.002, 0.02))


def dequantise_int(codes, scales, zeros, group_of):
    return [[f32(float(q - zeros[o][group_of[k]]) * scales[o][group_of[k]]) for k, q in enumerate(row)]
            for o, row in enumerate(codes)]


# ---- formats: each adds the tensors of module `name` and says what they mean ----

def ct_packed(c, name, n_out, n_in, bits=4, group=32, scale='BF16', zeros=None, reorder=False, padded=False, wide=True):
    """compressed-tensors pack-quantized. group None: channel. zeros: None, 'packed' or 'bytes'."""
    rng, n_groups, middle = c.random, 1 if group is None else n_in // group, 1 << (bits - 1)
    size = n_in if group is None else group
    codes = [[bell(rng, bits) for _ in range(n_in)] for _ in range(n_out)]
    scales = [[positive(rng, scale) for _ in range(n_groups)] for _ in range(n_out)]
    zero = [[bell(rng, bits) if zeros else middle for _ in range(n_groups)] for _ in range(n_out)]
    group_of = [k // size for k in range(n_in)]
    if reorder:
        rng.shuffle(group_of)
    rows = [pack_words(row, bits, padded) for row in codes]
    c.add(name + '.weight_packed', 'I32', (n_out, len(rows[0])), words_bytes(sum(rows, [])))
    c.floats(name + '.weight_scale', scale, (n_out, n_groups), sum(scales, []))
    c.add(name + '.weight_shape', 'I64' if wide else 'I32', (2,), struct.pack('<2q' if wide else '<2i', n_out, n_in))
    if zeros == 'packed':
        columns = [pack_words(column, bits, padded) for column in transpose(zero)]
        words = transpose(columns)
        c.add(name + '.weight_zero_point', 'I32', (len(words), n_groups), words_bytes(sum(words, [])))
    elif zeros == 'bytes':
        c.add(name + '.weight_zero_point', 'I8', (n_out, n_groups),
              b''.join(struct.pack('<b', z - middle) for z in sum(zero, [])))
    if reorder:
        c.add(name + '.weight_g_idx', 'I32', (n_in,), struct.pack('<%di' % n_in, *group_of))
    text = 'int%d %s%s%s' % (bits, 'channel' if n_groups == 1 else 'g%d' % group, ' zeros' if zeros else '',
                             ' reordered' if reorder else '')
    c.expect(name, dequantise_int(codes, scales, zero, group_of), text)


def ct_int8(c, name, n_out, n_in, group=None, zeros=False, scale='BF16', tensor=False):
    rng, n_groups = c.random, 1 if group is None else n_in // group
    codes = [[max(-128, min(127, round(rng.gauss(0, 40)))) for _ in range(n_in)] for _ in range(n_out)]
    n_rows = 1 if tensor else n_out
    scales = [[positive(rng, scale) for _ in range(n_groups)] for _ in range(n_rows)]
    zero = [[rng.randint(-9, 9) if zeros else 0 for _ in range(n_groups)] for _ in range(n_rows)]
    c.add(name + '.weight', 'I8', (n_out, n_in), b''.join(struct.pack('<b', q) for q in sum(codes, [])))
    c.floats(name + '.weight_scale', scale, (1,) if tensor else (n_out, n_groups), sum(scales, []))
    if zeros:
        c.add(name + '.weight_zero_point', 'I8', (1,) if tensor else (n_out, n_groups),
              b''.join(struct.pack('<b', z) for z in sum(zero, [])))
    size = group or n_in
    rows = dequantise_int(codes, scales * (n_out if tensor else 1), zero * (n_out if tensor else 1),
                          [k // size for k in range(n_in)])
    text = 'int8 ' + ('tensor' if tensor else 'g%d' % group if group else 'channel')
    c.expect(name, rows, text + (' zeros' if zeros else ''))


def e4m3_codes(rng, n):
    """Every code but NaN, mostly middling ones."""
    codes = [rng.randrange(256) if rng.random() < 0.1 else rng.choice((0, 128)) + rng.randrange(0x08, 0x48) for _ in range(n)]
    return [0x3a if code & 0x7f == 0x7f else code for code in codes]


def fp8(c, name, n_out, n_in, block=None, scale='F32', suffix='.weight_scale', shape=None, e5m2=False, text=None):
    """block: (outputs, inputs) per scale. shape: how the scales are stored; None: [rows, columns]."""
    rng = c.random
    block = block or (n_out, n_in)
    n_rows, n_columns = -(-n_out // block[0]), -(-n_in // block[1])
    codes = [e4m3_codes(rng, n_in) for _ in range(n_out)]
    if e5m2:
        codes = [[code if code >> 2 & 31 != 31 else 0x3c for code in row] for row in codes]
    if scale in ('U8', 'F8_E8M0'):
        scale_codes = [[rng.randint(118, 124) for _ in range(n_columns)] for _ in range(n_rows)]
        scales = [[e8m0_value(s) for s in row] for row in scale_codes]
        data = bytes(sum(scale_codes, []))
    else:
        scales = [[positive(rng, scale) for _ in range(n_columns)] for _ in range(n_rows)]
        data = b''.join(FLOATS[scale][1](s) for s in sum(scales, []))
    value = e5m2_value if e5m2 else e4m3_value
    c.add(name + '.weight', 'F8_E5M2' if e5m2 else 'F8_E4M3', (n_out, n_in), bytes(sum(codes, [])))
    c.add(name + suffix, scale, (n_rows, n_columns) if shape is None else shape, data)
    rows = [[f32(value(q) * scales[o // block[0]][k // block[1]]) for k, q in enumerate(row)]
            for o, row in enumerate(codes)]
    c.expect(name, rows, text or 'fp8 %dx%d' % block)


def fp4(c, name, n_out, n_in, kind, data='.weight_packed', scale='.weight_scale', global_scale=None):
    """kind 'nv': E4M3 scales per 16 and a global scale; 'mx': powers of two per 32."""
    rng, group = c.random, 16 if kind == 'nv' else 32
    codes = [[rng.randrange(16) for _ in range(n_in)] for _ in range(n_out)]
    packed = [row[k] | row[k + 1] << 4 for row in codes for k in range(0, n_in, 2)]
    c.add(name + data, 'U8', (n_out, n_in // 2), bytes(packed))
    if kind == 'nv':
        scale_codes = [[rng.randrange(0x28, 0x7e) for _ in range(n_in // group)] for _ in range(n_out)]
        divides = global_scale == '.weight_global_scale'
        whole = f32(rng.uniform(2000, 9000)) if divides else f32(1 / rng.uniform(2000, 9000))
        scales = [[f32(e4m3_value(s) / whole) if divides else f32(e4m3_value(s) * whole) for s in row]
                  for row in scale_codes]
        c.floats(name + global_scale, 'F32', (1,) if divides else (), [whole])
    else:
        scale_codes = [[rng.randint(117, 123) for _ in range(n_in // group)] for _ in range(n_out)]
        scales = [[e8m0_value(s) for s in row] for row in scale_codes]
    c.add(name + scale, 'F8_E4M3' if kind == 'nv' else 'U8', (n_out, n_in // group), bytes(sum(scale_codes, [])))
    rows = [[f32(e2m1_value(q) * scales[o][k // group]) for k, q in enumerate(row)] for o, row in enumerate(codes)]
    c.expect(name, rows, kind + 'fp4 g%d' % group)


def awq(c, name, n_out, n_in, group):
    rng, n_groups = c.random, n_in // group
    order = [0, 2, 4, 6, 1, 3, 5, 7]  # nibble i holds output order[i]
    codes = [[bell(rng, 4) for _ in range(n_out)] for _ in range(n_in)]  # [in, out]
    zeros = [[bell(rng, 4) for _ in range(n_out)] for _ in range(n_groups)]
    scales = [[positive(rng, 'F16') for _ in range(n_out)] for _ in range(n_groups)]

    def pack(rows):
        return words_bytes([sum(row[at + order[i]] << (4 * i) for i in range(8))
                            for row in rows for at in range(0, n_out, 8)])

    c.add(name + '.qweight', 'I32', (n_in, n_out // 8), pack(codes))
    c.add(name + '.qzeros', 'I32', (n_groups, n_out // 8), pack(zeros))
    c.floats(name + '.scales', 'F16', (n_groups, n_out), sum(scales, []))
    rows = [[f32(float(codes[k][o] - zeros[k // group][o]) * scales[k // group][o]) for k in range(n_in)]
            for o in range(n_out)]
    c.expect(name, rows, 'int4 %s in-major zeros' % ('g%d' % group if n_groups > 1 else 'channel'))


def gptq(c, name, n_out, n_in, bits=4, group=32, version=1, stored_middle=None, reorder=False):
    """stored_middle: every stored zero point is the middle (v2's spelling of a symmetric weight) or one less."""
    rng, n_groups, mask = c.random, n_in // group, (1 << bits) - 1
    codes = [[bell(rng, bits) for _ in range(n_out)] for _ in range(n_in)]
    true_zero = [[rng.choice((0, 1, mask)) if rng.random() < 0.1 else bell(rng, bits) for _ in range(n_out)]
                 for _ in range(n_groups)]
    if stored_middle is not None:
        true_zero = [[1 << (bits - 1)] * n_out for _ in range(n_groups)]
        stored = [[stored_middle] * n_out for _ in range(n_groups)]
    else:
        stored = [[(z - 1 if version == 1 else z) & mask for z in row] for row in true_zero]
    scales = [[positive(rng, 'F16') for _ in range(n_out)] for _ in range(n_groups)]
    group_of = [k // group for k in range(n_in)]
    if reorder:
        rng.shuffle(group_of)
    columns = [pack_words(column, bits) for column in transpose(codes)]
    c.add(name + '.qweight', 'I32', (len(columns[0]), n_out), words_bytes(sum(transpose(columns), [])))
    c.add(name + '.qzeros', 'I32', (n_groups, n_out * bits // 32), words_bytes(sum((pack_words(row, bits) for row in stored), [])))
    c.floats(name + '.scales', 'F16', (n_groups, n_out), sum(scales, []))
    c.add(name + '.g_idx', 'I32', (n_in,), struct.pack('<%di' % n_in, *group_of))
    rows = [[f32(float(codes[k][o] - true_zero[group_of[k]][o]) * scales[group_of[k]][o]) for k in range(n_in)]
            for o in range(n_out)]
    c.expect(name, rows, 'int%d %s in-major zeros%s' % (bits, 'g%d' % group if n_groups > 1 else 'channel',
                                                        ' reordered' if reorder else ''))


def plain(c, name, n_out, n_in):
    values = [[bf16_value(bf16_code(c.random.gauss(0, 0.08))) for _ in range(n_in)] for _ in range(n_out)]
    c.floats(name + '.weight', 'BF16', (n_out, n_in), sum(values, []))
    c.expect(name, values, 'bf16')


# ---- whole models ----

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, WIDE, VOCAB = 64, 2, 1, 16, 96, 32
LINEARS = [('self_attn.q_proj', HEADS * HEAD_DIM, HIDDEN), ('self_attn.k_proj', KV_HEADS * HEAD_DIM, HIDDEN),
           ('self_attn.v_proj', KV_HEADS * HEAD_DIM, HIDDEN), ('self_attn.o_proj', HIDDEN, HEADS * HEAD_DIM),
           ('mlp.gate_proj', WIDE, HIDDEN), ('mlp.up_proj', WIDE, HIDDEN), ('mlp.down_proj', HIDDEN, WIDE)]


def llama_config(quantization, n_layers):
    return {'architectures': ['LlamaForCausalLM'], 'model_type': 'llama', 'hidden_size': HIDDEN,
            'intermediate_size': WIDE, 'num_hidden_layers': n_layers, 'num_attention_heads': HEADS,
            'num_key_value_heads': KV_HEADS, 'head_dim': HEAD_DIM, 'vocab_size': VOCAB, 'hidden_act': 'silu',
            'max_position_embeddings': 512, 'rms_norm_eps': 1e-05, 'rope_theta': 10000.0, 'attention_bias': False,
            'mlp_bias': False, 'tie_word_embeddings': True, 'bos_token_id': 1, 'eos_token_id': 2,
            'torch_dtype': 'bfloat16', 'quantization_config': quantization}


def llama(root, name, quantization, seed, formats):
    """formats: one function (checkpoint, module name, n_out, n_in), or a list that is gone through module by module."""
    formats = formats if isinstance(formats, list) else [formats]
    n_layers = -(-len(formats) // len(LINEARS))
    c = Checkpoint(root, name, llama_config(quantization, n_layers), seed, model=True)
    plain(c, 'model.embed_tokens', VOCAB, HIDDEN)
    c.floats('model.norm.weight', 'BF16', (HIDDEN,), [bf16_value(bf16_code(c.random.uniform(0.8, 1.2))) for _ in range(HIDDEN)])
    at = 0
    for layer in range(n_layers):
        prefix = 'model.layers.%d.' % layer
        for norm in ('input_layernorm', 'post_attention_layernorm'):
            c.floats(prefix + norm + '.weight', 'BF16', (HIDDEN,),
                     [bf16_value(bf16_code(c.random.uniform(0.8, 1.2))) for _ in range(HIDDEN)])
        for module, n_out, n_in in LINEARS:
            formats[at % len(formats)](c, prefix + module, n_out, n_in)
            at += 1
    return c


def ct_scheme(bits, kind='int', strategy='group', group=None, symmetric=True, inputs=None, form=None, **more):
    weights = {'num_bits': bits, 'type': kind, 'symmetric': symmetric, 'group_size': group, 'strategy': strategy,
               'block_structure': None, 'dynamic': False, 'actorder': None, 'observer': 'minmax', 'observer_kwargs': {}}
    weights.update(more)
    return {'targets': ['Linear'], 'weights': weights, 'input_activations': inputs, 'output_activations': None,
            'format': form}


def ct_config(form, *schemes, **more):
    config = {'quant_method': 'compressed-tensors', 'format': form, 'quantization_status': 'compressed',
              'global_compression_ratio': None, 'kv_cache_scheme': None, 'ignore': ['lm_head'],
              'sparsity_config': {}, 'transform_config': {}, 'version': '0.12.2',
              'config_groups': {'group_%d' % i: s for i, s in enumerate(schemes)}}
    config.update(more)
    return config


DYNAMIC = {'num_bits': 8, 'type': 'int', 'symmetric': True, 'strategy': 'token', 'dynamic': True, 'group_size': None,
           'block_structure': None, 'actorder': None, 'observer': None, 'observer_kwargs': {}}


def models(root):
    yield llama(root, 'ct_w4a16', ct_config('pack-quantized', ct_scheme(4, group=32)), 1, ct_packed)
    mixed = [lambda c, *a: ct_packed(c, *a, zeros='packed'), lambda c, *a: ct_packed(c, *a, group=None, bits=8),
             ct_int8, lambda c, *a: fp8(c, *a, block=(a[1], a[2]), scale='BF16', shape=(1,), text='fp8 tensor'),
             lambda c, *a: fp8(c, *a, block=(1, a[2]), scale='BF16', text='fp8 channel'),
             lambda c, *a: fp4(c, *a, 'nv', global_scale='.weight_global_scale'), lambda c, *a: fp4(c, *a, 'mx'),
             lambda c, *a: fp8(c, *a, block=(1, 32), scale='U8', text='fp8 g32'),
             lambda c, *a: ct_packed(c, *a, reorder=True), lambda c, *a: ct_int8(c, *a, zeros=True)]
    yield llama(root, 'ct_mixed', ct_config(
        'mixed-precision', ct_scheme(4, group=32, symmetric=False, form='pack-quantized'),
        ct_scheme(8, strategy='channel', form='pack-quantized'),
        ct_scheme(8, strategy='channel', inputs=DYNAMIC, form='int-quantized'),
        ct_scheme(8, 'float', 'tensor', inputs=DYNAMIC, form='float-quantized'),
        ct_scheme(8, 'float', 'channel', inputs=DYNAMIC, form='float-quantized'),
        ct_scheme(4, 'float', 'tensor_group', 16, form='nvfp4-pack-quantized', scale_dtype='torch.float8_e4m3fn'),
        ct_scheme(4, 'float', 'group', 32, form='mxfp4-pack-quantized', scale_dtype='torch.uint8'),
        ct_scheme(8, 'float', 'group', 32, form='mxfp8-quantized', scale_dtype='torch.uint8'),
        ct_scheme(4, group=32, actorder='group', form='pack-quantized')), 2, mixed)
    yield llama(root, 'awq', {'quant_method': 'awq', 'bits': 4, 'group_size': 32, 'zero_point': True, 'version': 'gemm',
                              'modules_to_not_convert': None}, 3, lambda c, *a: awq(c, *a, group=32))
    yield llama(root, 'gptq', {
        'quant_method': 'gptq', 'bits': 4, 'group_size': 32, 'desc_act': True, 'sym': False, 'lm_head': False,
        'checkpoint_format': 'gptq', 'damp_percent': 0.1, 'damp_auto_increment': 0.0025, 'static_groups': False,
        'true_sequential': True, 'pack_dtype': 'int32', 'meta': {'quantizer': ['gptqmodel:2.0.0']},
        'dynamic': {'+:.*down_proj.*': {'bits': 8, 'group_size': 96}, '+:.*up_proj.*': {'bits': 3},
                    '+:.*o_proj.*': {'bits': 2, 'group_size': 16}, '-:.*k_proj.*': {}}}, 4,
        [lambda c, *a: gptq(c, *a, reorder=True), plain, gptq, lambda c, *a: gptq(c, *a, bits=2, group=16), gptq,
         lambda c, *a: gptq(c, *a, bits=3, reorder=True), lambda c, *a: gptq(c, *a, bits=8, group=96)])
    yield llama(root, 'fp8_block', {'quant_method': 'fp8', 'fmt': 'e4m3', 'activation_scheme': 'dynamic',
                                    'weight_block_size': [64, 64], 'modules_to_not_convert': ['lm_head']}, 5,
                lambda c, *a: fp8(c, *a, block=(64, 64), suffix='.weight_scale_inv',
                                  text='fp8 64x64' if a[1] > 64 and a[2] <= 64 else None if a[1] > 64 or a[2] > 64 else 'fp8 tensor'))
    c = llama(root, 'modelopt_nvfp4', {'quant_method': 'modelopt', 'quant_algo': 'NVFP4', 'ignore': ['lm_head'],
                                       'producer': {'name': 'modelopt', 'version': '0.35.0'},
                                       'config_groups': {'group_0': {
                                           'input_activations': {'dynamic': False, 'num_bits': 4, 'type': 'float', 'group_size': 16},
                                           'weights': {'dynamic': False, 'num_bits': 4, 'type': 'float', 'group_size': 16},
                                           'targets': ['Linear']}}}, 6,
              lambda c, *a: fp4(c, *a, 'nv', data='.weight', global_scale='.weight_scale_2'))
    for name in [m['name'] for m in c.modules if m['format'] != 'bf16']:
        c.floats(name + '.input_scale', 'F32', (), [0.004])
    yield c


# ---- single weights: shapes and spellings that whole models do not have ----

def weights(root, name, quantization, seed):
    return Checkpoint(root, name, {'model_type': 'llama', 'quantization_config': quantization} if quantization
                      else {'model_type': 'llama'}, seed)


def units_integer(root):
    c = weights(root, 'ct_bits', ct_config('pack-quantized', *[ct_scheme(b, group=32) for b in (2, 3, 5, 6, 7)],
                                           ct_scheme(4, group=48), ct_scheme(8, group=64)), 11)
    for bits in (2, 3, 5, 6, 7):
        ct_packed(c, 'dense%d' % bits, 5, 96, bits=bits, scale='F16')
        ct_packed(c, 'zeros%d' % bits, 19, 64, bits=bits, zeros='packed')
    for bits in (3, 5, 6):
        ct_packed(c, 'padded%d' % bits, 5, 96, bits=bits, padded=True, zeros='packed')
    ct_packed(c, 'group48', 6, 144, group=48, scale='F32', zeros='bytes', wide=False)
    ct_packed(c, 'eight', 6, 128, bits=8, group=64, zeros='packed')
    yield c
    c = weights(root, 'ct_channel', ct_config('pack-quantized', ct_scheme(4, strategy='channel', symmetric=False)), 12)
    ct_packed(c, 'ragged', 9, 100, group=None, zeros='packed')
    ct_packed(c, 'tail', 3, 57, group=None, zeros='packed')
    ct_packed(c, 'even', 17, 160, group=None, zeros='packed')
    yield c
    c = weights(root, 'ct_int8', ct_config('int-quantized', ct_scheme(8, strategy='channel', symmetric=False, inputs=DYNAMIC),
                                           ct_scheme(8, group=32)), 13)
    ct_int8(c, 'channel', 7, 50)
    ct_int8(c, 'tensor', 5, 64, tensor=True, zeros=True, scale='F32')
    ct_int8(c, 'group', 5, 96, group=32, zeros=True)
    yield c
    c = weights(root, 'awq_shapes', {'quant_method': 'awq', 'w_bit': 4, 'q_group_size': 64, 'zero_point': True, 'version': 'GEMM'}, 14)
    awq(c, 'wide', 64, 192, 64)
    awq(c, 'narrow', 24, 64, 64)
    yield c
    for label, stored, version in (('gptq_sym_v1', 7, 'gptq'), ('gptq_sym_mislabelled', 8, 'gptq'), ('gptq_sym_v2', 8, 'gptq_v2')):
        c = weights(root, label, {'quant_method': 'gptq', 'bits': 4, 'group_size': 32, 'desc_act': False, 'sym': True,
                                  'checkpoint_format': version}, 15)
        gptq(c, 'same', 16, 64, stored_middle=stored)
        yield c
    c = weights(root, 'gptq_v2', {'quant_method': 'gptq', 'bits': 4, 'group_size': -1, 'desc_act': False, 'sym': False,
                                  'checkpoint_format': 'gptq_v2'}, 16)
    gptq(c, 'whole', 24, 96, group=96, version=2)
    yield c


def units_float(root):
    c = weights(root, 'fp8_partial', {'quant_method': 'fp8', 'fmt': 'e4m3', 'activation_scheme': 'dynamic',
                                      'scale_fmt': 'ue8m0', 'weight_block_size': [128, 128]}, 21)
    fp8(c, 'rows', 270, 16, block=(128, 128), suffix='.weight_scale_inv', text='fp8 128x16')
    fp8(c, 'columns', 8, 300, block=(128, 128), suffix='.weight_scale_inv', scale='BF16', text='fp8 8x128')
    fp8(c, 'both', 130, 132, block=(128, 128), suffix='.weight_scale_inv', scale='F8_E8M0')
    fp8(c, 'bytes', 130, 16, block=(128, 128), suffix='.weight_scale_inv', scale='U8', text='fp8 128x16')
    fp8(c, 'scalar', 9, 40, suffix='.weight_scale_inv', shape=(), text='fp8 tensor')
    c.floats('scalar.activation_scale', 'F32', (), [0.01])
    yield c
    c = weights(root, 'fp8_untold', None, 22)  # no config: whole blocks of a usual extent
    fp8(c, 'block', 64, 128, block=(32, 64), suffix='.weight_scale_inv')
    fp8(c, 'channel', 12, 48, block=(1, 48), shape=(12,), text='fp8 channel')
    fp8(c, 'e5m2', 4, 32, e5m2=True, shape=(1,), text='fp8 e5m2 tensor')
    yield c
    c = weights(root, 'fbgemm_fp8', {'quant_method': 'fbgemm_fp8', 'activation_scale_ub': 1200.0,
                                     'modules_to_not_convert': ['lm_head']}, 23)
    fp8(c, 'channel', 10, 64, block=(1, 64), text='fp8 channel')
    yield c
    c = weights(root, 'modelopt_fp8', None, 24)
    c.files['hf_quant_config.json'] = {'producer': {'name': 'modelopt', 'version': '0.29.0'},
                                       'quantization': {'quant_algo': 'FP8', 'kv_cache_quant_algo': 'FP8',
                                                        'exclude_modules': ['lm_head']}}
    fp8(c, 'tensor', 6, 48, shape=(), text='fp8 tensor')
    c.floats('tensor.input_scale', 'F32', (), [0.02])
    yield c
    c = weights(root, 'quark_mxfp4', {'quant_method': 'quark', 'export': {'pack_method': 'reorder'}, 'exclude': ['lm_head'],
                                      'global_quant_config': {'weight': {'dtype': 'fp4', 'group_size': 32}}}, 25)
    fp4(c, 'linear', 6, 96, 'mx', data='.weight')
    yield c


def stacks(root):
    """Experts in one tensor."""
    c = weights(root, 'stack_mxfp4', {'quant_method': 'mxfp4', 'modules_to_not_convert': ['lm_head']}, 31)
    experts, n_out, n_in = 3, 10, 64
    one = Checkpoint(root, 'unused', {}, 32)
    for e in range(experts):
        fp4(one, '%d' % e, n_out, n_in, 'mx')
    name = 'model.layers.0.mlp.experts.gate_up_proj'
    parts = {t[0]: t[3] for t in one.tensors}
    c.add(name + '_blocks', 'U8', (experts, n_out, n_in // 32, 16), b''.join(parts['%d.weight_packed' % e] for e in range(experts)))
    c.add(name + '_scales', 'U8', (experts, n_out, n_in // 32), b''.join(parts['%d.weight_scale' % e] for e in range(experts)))
    c.modules = [dict(m, name=name, expert=int(m['name']), n_experts=experts, transposed=True) for m in one.modules]
    yield c
    c = weights(root, 'stack_fp8', {'quant_method': 'fp8', 'activation_scheme': 'dynamic', 'weight_block_size': [128, 128]}, 33)
    name, one = 'model.layers.0.mlp.experts.down_proj', Checkpoint(root, 'unused', {}, 34)
    for e in range(2):
        fp8(one, '%d' % e, 132, 24, block=(128, 128), text='fp8 128x24')
    c.add(name, 'F8_E4M3', (2, 132, 24), b''.join(t[3] for t in one.tensors if t[0].endswith('.weight')))
    c.add(name + '_scale_inv', 'F32', (2, 2, 1), b''.join(t[3] for t in one.tensors if t[0].endswith('_scale')))
    c.modules = [dict(m, name=name, expert=int(m['name']), n_experts=2, transposed=False) for m in one.modules]
    yield c
    c = weights(root, 'stack_plain', None, 35)
    name, n_out, n_in = 'model.layers.0.mlp.experts.gate_up_proj', 6, 20
    values = [[[bf16_value(bf16_code(c.random.gauss(0, 1))) for _ in range(n_out)] for _ in range(n_in)] for _ in range(2)]
    c.floats(name, 'BF16', (2, n_in, n_out), [v for e in values for row in e for v in row])
    for e in range(2):
        c.expect(name, transpose(values[e]), 'bf16 in-major', expert=e, n_experts=2, transposed=True)
    yield c


def main():
    root = sys.argv[1]
    for make in (models, units_integer, units_float, stacks):
        for checkpoint in make(root):
            checkpoint.write()


if __name__ == '__main__':
    main()
