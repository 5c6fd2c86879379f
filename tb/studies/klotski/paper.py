"""What the paper prints: C. Bai et al., "Klotski: DNN Model Orchestration Framework for Dataflow Architecture
Accelerators" (ICCAD 2023), Tables I to III."""

from __future__ import annotations

from typing import NamedTuple


class Printed(NamedTuple):
    """Of a network on a chip: cycles of baseline 1, baseline 2 and Klotski; hardware utilisation of the last two
    against baseline 1, search time of the last against baseline 2."""

    one: float
    two: float
    klotski: float
    busy_two: float
    busy_klotski: float
    time: float

    @property
    def cycles(self) -> tuple[float, float, float]:
        """Of baseline 1, baseline 2 and Klotski."""
        return self.one, self.two, self.klotski


#: By chip and network.
PRINTED = {
    ("klotski9", "vgg16"): Printed(1.2283e8, 5.5633e7, 4.0659e7, 2.5617, 3.0602, 1.8399),
    ("klotski9", "vgg19"): Printed(1.5523e8, 7.4207e7, 5.5381e7, 2.5229, 2.9857, 1.5401),
    ("klotski9", "resnet50"): Printed(7.7422e7, 5.7060e7, 4.8174e7, 0.9762, 1.3050, 3.0481),
    ("klotski9", "resnet152"): Printed(1.8984e8, 1.7102e8, 1.5947e8, 1.2523, 1.3605, 3.2302),
    ("klotski9", "inception_v3"): Printed(2.5122e7, 1.6345e7, 1.3348e7, 2.5103, 3.2996, 2.9719),
    ("klotski16", "vgg16"): Printed(1.2283e8, 4.5869e7, 3.0670e7, 2.1196, 2.4547, 2.7760),
    ("klotski16", "vgg19"): Printed(1.5523e8, 5.8049e7, 3.9934e7, 1.9895, 2.2964, 2.9076),
    ("klotski16", "resnet50"): Printed(7.7422e7, 5.3365e7, 4.6260e7, 2.8954, 3.1953, 1.8811),
    ("klotski16", "resnet152"): Printed(1.8984e8, 1.6578e8, 1.5754e8, 1.2264, 1.3438, 2.9323),
    ("klotski16", "inception_v3"): Printed(2.5188e7, 1.5183e7, 1.0781e7, 2.2822, 2.8579, 3.4148),
    ("klotski25", "vgg16"): Printed(1.2283e8, 4.2621e7, 2.4240e7, 2.7157, 3.4766, 3.5120),
    ("klotski25", "vgg19"): Printed(1.5523e8, 5.0412e7, 3.9046e7, 2.8346, 3.1257, 4.8351),
    ("klotski25", "resnet50"): Printed(7.7422e7, 5.0868e7, 4.4029e7, 1.8228, 1.9678, 2.6617),
    ("klotski25", "resnet152"): Printed(1.8984e8, 1.6460e8, 1.5240e8, 1.2575, 1.3352, 5.2515),
    ("klotski25", "inception_v3"): Printed(2.5180e7, 1.2733e7, 8.3088e6, 2.8642, 3.3710, 5.4126),
}
#: Clock of the paper's accelerators, in cycles a millisecond.
CLOCK = 1e6
