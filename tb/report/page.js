"use strict";
// The page of a run: figures by Plotly, and the timeline, which may have millions of slices, on a canvas of its own.
const data = JSON.parse(document.getElementById("data").textContent);

function numbers(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Int32Array(bytes.buffer);
}

class Timeline {
  // Slices of a track are in the order of start and do not overlap: starts, ends and operations are one array each, and
  // `first` says where each track begins in them.
  constructor(place, tip, found) {
    this.canvas = place;
    this.tip = tip;
    this.tracks = found.tracks;
    this.cycles = Math.max(1, found.cycles);
    this.labels = found.labels;
    this.layers = found.layers;
    this.labelOf = numbers(found.label_of);
    this.layerOf = numbers(found.layer_of);
    this.sides = found.sides.map((side) => ({
      name: side.name,
      first: side.first,
      start: numbers(side.start),
      end: numbers(side.end),
      operation: numbers(side.operation),
    }));
    this.row = 9; // pixels of a side of a track
    this.left = 150;
    this.view = [0, this.cycles];
    this.drawn = 0;
    place.addEventListener("wheel", (event) => this.zoomed(event), { passive: false });
    place.addEventListener("pointerdown", (event) => {
      this.held = [event.clientX, ...this.view];
      place.setPointerCapture(event.pointerId);
    });
    place.addEventListener("pointerup", () => (this.held = null));
    place.addEventListener("pointermove", (event) => (this.held ? this.dragged(event) : this.pointed(event)));
    place.addEventListener("pointerleave", () => (this.tip.style.display = "none"));
    place.addEventListener("dblclick", () => this.show(0, this.cycles));
    window.addEventListener("resize", () => this.draw());
    this.draw();
  }

  get pitch() {
    return this.sides.length * this.row + 4;
  }

  show(from, to) {
    const span = Math.min(this.cycles, Math.max(20, to - from));
    const begin = Math.max(0, Math.min(from, this.cycles - span));
    this.view = [begin, begin + span];
    if (!this.pending) {
      this.pending = requestAnimationFrame(() => {
        this.pending = 0;
        this.draw();
      });
    }
  }

  cycleAt(event) {
    const x = event.offsetX - this.left;
    return this.view[0] + (x / (this.canvas.clientWidth - this.left)) * (this.view[1] - this.view[0]);
  }

  zoomed(event) {
    event.preventDefault();
    const at = this.cycleAt(event);
    const factor = Math.exp(Math.sign(event.deltaY) * 0.25);
    this.show(at - (at - this.view[0]) * factor, at + (this.view[1] - at) * factor);
  }

  dragged(event) {
    const [x, from, to] = this.held;
    const moved = ((event.clientX - x) / (this.canvas.clientWidth - this.left)) * (to - from);
    this.show(from - moved, to - moved);
  }

  // The first slice of a track that ends after a cycle.
  after(side, track, cycle) {
    let low = side.first[track];
    let high = side.first[track + 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (side.end[middle] > cycle) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  pointed(event) {
    const track = Math.floor((event.offsetY - 20) / this.pitch);
    const side = this.sides[Math.floor(((event.offsetY - 20) % this.pitch) / this.row)];
    const cycle = this.cycleAt(event);
    this.tip.style.display = "none";
    if (!side || !(track in this.tracks) || event.offsetX < this.left) return;
    const slice = this.after(side, track, cycle);
    if (slice >= side.first[track + 1] || side.start[slice] > cycle) return;
    const operation = side.operation[slice];
    const name = operation < 0 ? "added by lowering" : `${operation}: ${this.labels[this.labelOf[operation]]}`;
    const span = `${side.start[slice].toLocaleString("en")} to ${side.end[slice].toLocaleString("en")}`;
    this.tip.textContent = `${name}, ${side.name}, cycles ${span} (${side.end[slice] - side.start[slice]})`;
    this.tip.style.display = "block";
    this.tip.style.left = `${Math.min(event.offsetX + 14, this.canvas.clientWidth - this.tip.offsetWidth)}px`;
    this.tip.style.top = `${event.offsetY + 14}px`;
  }

  colour(operation) {
    const layer = operation < 0 ? -1 : this.layerOf[operation];
    return layer < 0 ? "#9aa3af" : `hsl(${(layer * 137.5) % 360} 62% ${44 + (layer % 3) * 8}%)`;
  }

  draw() {
    const ratio = window.devicePixelRatio || 1;
    const width = this.canvas.clientWidth;
    const height = 24 + this.tracks.length * this.pitch;
    this.canvas.style.height = `${height}px`;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    const pen = this.canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.font = "11px system-ui, sans-serif";
    this.axis(pen, width, height);
    this.drawn = 0;
    this.tracks.forEach((name, track) => {
      const top = 20 + track * this.pitch;
      pen.fillStyle = "#1c2430";
      pen.fillText(name, 0, top + this.row + 2, this.left - 8);
      this.sides.forEach((side, number) => {
        pen.fillStyle = number ? "#eef1f5" : "#f7f9fb";
        pen.fillRect(this.left, top + number * this.row, width - this.left, this.row);
        this.slices(pen, side, track, top + number * this.row, width - this.left);
      });
    });
  }

  axis(pen, width, height) {
    const span = this.view[1] - this.view[0];
    const rough = span / 8;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = power * [1, 2, 5, 10].find((each) => each * power >= rough);
    pen.strokeStyle = "#d5dae1";
    pen.fillStyle = "#566070";
    for (let cycle = Math.ceil(this.view[0] / step) * step; cycle <= this.view[1]; cycle += step) {
      const x = this.left + ((cycle - this.view[0]) / span) * (width - this.left);
      pen.beginPath();
      pen.moveTo(x, 14);
      pen.lineTo(x, height);
      pen.stroke();
      pen.fillText(Math.round(cycle).toLocaleString("en"), x + 2, 11);
    }
  }

  // Slices wider than a pixel are boxes. Of narrower ones each column of pixels shows how much of its time they take,
  // in the colour of the one that takes most: so no more is drawn than there are pixels.
  slices(pen, side, track, top, width) {
    const [from, to] = this.view;
    const scale = width / (to - from);
    const stop = side.first[track + 1];
    let column = -1;
    let taken = 0;
    let most = 0;
    let of = -1;
    const flush = () => {
      if (column < 0) return;
      pen.globalAlpha = Math.min(1, 0.15 + 0.85 * taken);
      pen.fillStyle = this.colour(of);
      pen.fillRect(this.left + column, top, 1, this.row);
      pen.globalAlpha = 1;
      this.drawn += 1;
      column = -1;
    };
    for (let slice = this.after(side, track, from); slice < stop && side.start[slice] < to; slice += 1) {
      const x = Math.max(0, (side.start[slice] - from) * scale);
      const wide = Math.min(width, (side.end[slice] - from) * scale) - x;
      if (wide >= 1) {
        flush();
        pen.fillStyle = this.colour(side.operation[slice]);
        pen.fillRect(this.left + x, top, Math.max(1, wide - (wide > 3 ? 0.5 : 0)), this.row);
        this.drawn += 1;
        continue;
      }
      const pixel = Math.floor(x);
      if (pixel !== column) {
        flush();
        column = pixel;
        taken = 0;
        most = 0;
      }
      taken += wide;
      if (wide > most) {
        most = wide;
        of = side.operation[slice];
      }
    }
    flush();
  }
}

// Draws a workload, once it can be seen.
function drawn(run) {
  const place = document.getElementById(`w${run.at}-run`);
  if (place.dataset.drawn) return;
  place.dataset.drawn = "yes";
  for (const figure of run.figures) {
    Plotly.newPlot(figure.id, figure.data, figure.layout, { responsive: true, displaylogo: false });
  }
  window.timeline = new Timeline(place.querySelector(".gantt canvas"), place.querySelector(".tip"), run.timeline);
}

for (const run of data) {
  const fold = document.querySelector(`#w${run.at}-run > details`);
  if (!fold || fold.open) drawn(run);
  fold?.addEventListener("toggle", () => fold.open && drawn(run));
}
document.body.dataset.ready = "yes";
