"""Figures of another implementation of E-divisive for tests/change_points.rs.

python3 -m venv VENV && VENV/bin/pip install signal-processing-algorithms==2.1.6 && VENV/bin/python e_divisive.py > e_divisive.json
"""
import json, random
import numpy as np
from importlib.metadata import version
from signal_processing_algorithms.energy_statistics import energy_statistics as es

random.seed(20261129)
np.random.seed(1)
worlds = {
    "none": [(40, 100.0, 1.0)],
    "step of 5 %": [(20, 100.0, 1.0), (20, 105.0, 1.0)],
    "step near the end": [(33, 100.0, 1.0), (7, 104.0, 1.0)],
    "two steps": [(15, 100.0, 1.0), (15, 108.0, 1.0), (20, 97.0, 1.0)],
    "wider": [(30, 100.0, 0.5), (30, 100.0, 6.0)],
    "ties": [(12, 7.0, 0.0), (12, 8.0, 0.0)],
}
out = []
for name, parts in worlds.items():
    values = [round(random.gauss(mean, sd), 3) for count, mean, sd in parts for _ in range(count)]
    distances = es._get_distance_matrix(es._convert(values))
    statistics = es._calculate_t_stats(distances)
    at = int(np.argmax(statistics))
    changes = [int(c) for c in sorted(es.e_divisive(values, pvalue=0.01, permutations=999))]
    out.append({"name": name, "values": values, "at": at, "statistic": float(statistics[at]), "changes": changes})
print(json.dumps({"by": "signal-processing-algorithms " + version("signal-processing-algorithms"),
                  "command": "e_divisive.py: e_divisive(values, pvalue=0.01, permutations=999)", "series": out}))
