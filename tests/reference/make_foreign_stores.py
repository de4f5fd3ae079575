"""Feature stores as other programs write them, by torch itself, from one that eaglet wrote for speculators.

usage: make_foreign_stores.py STORE OUT
STORE: eaglet extract MODEL --data D --out STORE --format speculators. OUT gets speculators-fp8/, speculators-0.3/, speculators-0/,
specforge/, specforge-gz/ and modelopt/. Each must pass `eaglet extract MODEL --check OUT/x --data D`, and but for the FP8 one a run of
`eaglet train` from it must give the head that STORE gives. speculators-0 and the two of SpecForge hold the last state as it is stored,
before the final norm, which those programs do not.
"""
import gzip, json, pathlib, sys

import torch
from safetensors import safe_open
from safetensors.torch import save_file

store, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
rows = [json.loads(line) for line in open(store / "rows.jsonl")]
for name in ("speculators-fp8", "speculators-0.3", "speculators-0", "specforge", "specforge-gz", "modelopt"):
    (out / name).mkdir(parents=True, exist_ok=True)
for i, row in enumerate(rows):
    with safe_open(store / f"hs_{i}.safetensors", "pt") as file:
        states, ids = file.get_tensor("hidden_states"), file.get_tensor("token_ids")
    assert ids.tolist() == row["input_ids"]
    mask = torch.tensor(row["loss_mask"], dtype=torch.long)
    aux, last = states[:, :-1].reshape(len(ids), -1).contiguous(), states[:, -1].contiguous()
    scale = states.float().abs().amax(dim=(1, 2)).clamp(min=1e-12) / 448
    fp8 = (states.float() / scale[:, None, None]).to(torch.float8_e4m3fn)
    save_file({"hidden_states": fp8, "hidden_states_scale": scale, "token_ids": ids}, out / f"speculators-fp8/hs_{i}.safetensors")
    torch.save({"input_ids": ids, "hidden_states": [states[:, k].contiguous() for k in range(states.shape[1])], "loss_mask": mask},
               out / f"speculators-0.3/data_{i}.pt")
    torch.save({"input_ids": ids, "loss_mask": mask, "hidden_state": aux, "target": last}, out / f"speculators-0/data_{i}.pt")
    sample = {"input_ids": ids[None], "loss_mask": mask[None], "aux_hidden_state": aux[None], "hidden_state": last[None]}
    torch.save(sample, out / f"specforge/data_{i}.ckpt")
    with gzip.open(out / f"specforge-gz/data_{i}.ckpt.gz", "wb") as file:
        torch.save(sample, file)
    torch.save({"input_ids": ids, "hidden_states": last, "aux_hidden_states": aux, "loss_mask": mask, "conversation_id": row["id"]},
               out / f"modelopt/{row['id']}.pt")
