"""A small pytorch_model.bin and a training sample as torch.save writes them, for tests/data/torch: the pickle by Python's own pickler
(which torch.save uses), around it the records of its zip archive, aligned to 64 bytes as torch aligns them.

usage: make_torch_file.py OUT.bin SAMPLE.pt
Needs no torch: what the pickle must name is made up here under torch's names. Value i of tensor k is i + 100 k.
"""
import collections, io, pickle, struct, sys, types, zipfile

ELEMENTS = {"FloatStorage": "f", "BFloat16Storage": None, "HalfStorage": "e", "LongStorage": "q", "BoolStorage": "?"}
torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
sys.modules.update({"torch": torch, "torch._utils": utils})


def _rebuild_tensor_v2(*args):
    raise NotImplementedError


def _rebuild_parameter(*args):
    raise NotImplementedError


for function in (_rebuild_tensor_v2, _rebuild_parameter):
    function.__module__ = "torch._utils"
    setattr(utils, function.__name__, function)
for name in ELEMENTS:
    setattr(torch, name, type(name, (), {"__module__": "torch"}))


class Storage:
    def __init__(self, kind, key, values):
        self.kind, self.key, self.n = kind, key, len(values)
        code = ELEMENTS[kind]
        if code:
            self.bytes = b"".join(struct.pack("<" + code, v) for v in values)
        else:
            self.bytes = b"".join(struct.pack("<f", v)[2:] for v in values)


class Tensor:
    def __init__(self, storage, offset, size):
        self.storage, self.offset, self.size = storage, offset, size

    def __reduce_ex__(self, protocol):
        stride, n = [], 1
        for length in reversed(self.size):
            stride.insert(0, n)
            n *= length
        return utils._rebuild_tensor_v2, (self.storage, self.offset, self.size, tuple(stride), False, collections.OrderedDict())


class Parameter:
    def __init__(self, data):
        self.data = data

    def __reduce_ex__(self, protocol):
        return utils._rebuild_parameter, (self.data, True, collections.OrderedDict())


class Pickler(pickle.Pickler):
    def persistent_id(self, value):
        if isinstance(value, Storage):
            return ("storage", getattr(torch, value.kind), value.key, "cpu", value.n)


def numbers(k, n):
    return [i + 100 * k for i in range(n)]


storages = [Storage("BFloat16Storage", "0", numbers(0, 12)), Storage("FloatStorage", "1", numbers(1, 5)),
            Storage("LongStorage", "2", numbers(2, 300)), Storage("BoolStorage", "3", [i % 3 == 0 for i in range(7)]),
            Storage("HalfStorage", "4", numbers(4, 8))]
state = collections.OrderedDict()
state["midlayer.a.weight"] = Tensor(storages[0], 0, (3, 4))
state["norm.weight"] = Tensor(storages[1], 0, (5,))
state["d2t"] = Tensor(storages[2], 0, (300,))
state["t2d"] = Tensor(storages[3], 0, (7,))
state["part"] = Tensor(storages[4], 2, (2, 1, 3))  # the middle of a storage
state["same"] = Parameter(state["midlayer.a.weight"])
state["scalar"] = Tensor(storages[1], 4, ())
state["none"] = Tensor(storages[4], 8, (0, 3))
state._metadata = collections.OrderedDict([("", {"version": 1}), ("midlayer", {"version": 1})])



def save(path, value, storages):
    data = io.BytesIO()
    Pickler(data, protocol=2).dump(value)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as out:
        def put(name, content):
            info = zipfile.ZipInfo("pytorch_model/" + name, (1980, 1, 1, 0, 0, 0))
            pad = -(out.fp.tell() + 30 + len(info.filename) + 4) % 64
            info.extra = b"FB" + struct.pack("<H", pad) + b"Z" * pad
            out.writestr(info, content)
        put("data.pkl", data.getvalue())
        put("byteorder", b"little")
        for s in storages:
            put("data/" + s.key, s.bytes)
        put("version", b"3\n")
        put(".data/serialization_id", b"0000000000000000000000000000000000000000")


save(sys.argv[1], state, storages)

# Six tokens of width 3: a list of states that are parts of one storage, ids and mask, and what else people note.
states = Storage("BFloat16Storage", "0", numbers(0, 72))
ids, mask = Storage("LongStorage", "1", numbers(1, 6)), Storage("LongStorage", "2", [0, 0, 0, 1, 1, 1])
sample = {"input_ids": Tensor(ids, 0, (6,)), "hidden_states": [Tensor(states, 18 * k, (6, 3)) for k in range(4)],
          "loss_mask": Tensor(mask, 0, (6,)),
          "notes": {"id": "row 7 \u00e9", "turns": 3, "score": 0.5, "none": None, "spans": [(2, 4), (5, -6)], 9: True}}
save(sys.argv[2], sample, [states, ids, mask])
