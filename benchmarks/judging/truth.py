"""The deterministic signal: is the stated sum the sum?"""


class Truth:
    version = "1"

    def score(self, task, outcome):
        return float(outcome["artefacts"]["said"] == sum(task["reference"]["prices"]))


truth = Truth()
