"use strict";
// The page of a run: figures by Plotly, and the timeline, which may have millions of slices, on a canvas of its own.
const data = JSON.parse(document.getElementById("data").textContent);

const dark = window.matchMedia("(prefers-color-scheme: dark)");

// A colour of page.css, as it is now.
function paint(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

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
    this.only = -1; // the layer that alone has its colour; -1: all
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
    dark.addEventListener("change", () => this.draw());
    this.draw();
  }

  // Pixels for the names of tracks.
  get left() {
    return this.canvas.clientWidth < 600 ? 96 : 150;
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

  // Makes the view so many times as long around its middle; 0: all of it.
  scaled(factor) {
    const middle = (this.view[0] + this.view[1]) / 2;
    const half = ((this.view[1] - this.view[0]) * factor) / 2;
    if (factor) this.show(middle - half, middle + half);
    else this.show(0, this.cycles);
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
    return this.only < 0 || layer === this.only ? this.colourOf(layer) : "rgba(128,140,160,0.3)";
  }

  colourOf(layer) {
    return layer < 0 ? "#9aa3af" : `hsl(${(layer * 137.5) % 360} 62% ${44 + (layer % 3) * 8}%)`;
  }

  // A button for each layer, in its colour; one that is pressed leaves colour to its layer alone.
  legend(place) {
    const used = new Set(this.layerOf);
    this.layers.forEach((name, layer) => {
      if (!used.has(layer)) return;
      const button = document.createElement("button");
      const square = document.createElement("i");
      square.className = "swatch";
      square.style.background = this.colourOf(layer);
      button.append(square, name);
      button.addEventListener("click", () => {
        this.only = this.only === layer ? -1 : layer;
        for (const each of place.children) each.setAttribute("aria-pressed", this.only >= 0 && each === button);
        this.draw();
      });
      place.append(button);
    });
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
    const grounds = [paint("planned"), paint("measured")];
    this.tracks.forEach((name, track) => {
      const top = 20 + track * this.pitch;
      pen.fillStyle = paint("ink");
      pen.fillText(name, 0, top + this.row + 2, this.left - 8);
      this.sides.forEach((side, number) => {
        pen.fillStyle = grounds[number];
        pen.fillRect(this.left, top + number * this.row, width - this.left, this.row);
        this.slices(pen, side, track, top + number * this.row, width - this.left);
      });
    });
  }

  axis(pen, width, height) {
    const span = this.view[1] - this.view[0];
    const rough = span / Math.max(2, (width - this.left) / 120);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = power * [1, 2, 5, 10].find((each) => each * power >= rough);
    pen.strokeStyle = paint("line");
    pen.fillStyle = paint("soft");
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

// What a figure's layout has of the page: its colours, light or dark.
function withColours(layout) {
  const axis = { gridcolor: paint("faint"), linecolor: paint("line"), zerolinecolor: paint("line") };
  return {
    ...layout,
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { ...layout.font, color: paint("ink") },
    xaxis: { ...layout.xaxis, ...axis },
    yaxis: { ...layout.yaxis, ...axis },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: paint("soft"), activecolor: paint("ink") },
    hoverlabel: { font: { color: "#fff" }, bgcolor: "#1c2430" },
  };
}

// Names of a roofline's layers: beside its point each, where no other name, point or edge is in the way; else none.
function placeNames(place) {
  const { xaxis, yaxis } = place._fullLayout;
  const layers = place.data[1];
  const log = Math.log10;
  const points = layers.x.map((x, number) => [xaxis.l2p(log(x)), yaxis.l2p(log(layers.y[number]))]);
  const boxes = points.map(([x, y]) => [x - 5, y - 5, x + 5, y + 5]);
  const free = (box) =>
    box[0] >= 0 && box[1] >= 0 && box[2] <= xaxis._length && box[3] <= yaxis._length &&
    boxes.every((other) => box[2] < other[0] || other[2] < box[0] || box[3] < other[1] || other[3] < box[1]);
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = `12px ${place._fullLayout.font.family}`;
  const text = [];
  const position = [];
  const order = points.map((_, number) => number).sort((a, b) => points[b][1] - points[a][1]);
  for (const number of order) {
    const [x, y] = points[number];
    const name = layers.hovertext[number];
    const wide = pen.measureText(name).width + 4;
    const places = {
      "middle right": [x + 6, y - 9, x + 10 + wide, y + 9],
      "middle left": [x - 10 - wide, y - 9, x - 6, y + 9],
      "bottom center": [x - wide / 2, y + 5, x + wide / 2, y + 23],
      "top center": [x - wide / 2, y - 23, x + wide / 2, y - 5],
    };
    const where = Object.keys(places).find((each) => free(places[each]));
    text[number] = where ? name : "";
    position[number] = where ?? "middle right";
    if (where) boxes.push(places[where]);
  }
  Plotly.restyle(place, { text: [text], textposition: [position] }, [1]);
}

// Draws a figure, and again when the page becomes dark or light.
function plot(figure) {
  const place = document.getElementById(figure.id);
  if (figure.layout.height) place.style.height = `${figure.layout.height}px`;
  const options = { responsive: true, displaylogo: false, displayModeBar: "hover" };
  Plotly.newPlot(place, figure.data, withColours(figure.layout), options).then(() => {
    if (!figure.id.endsWith("roofline")) return;
    placeNames(place);
    place.on("plotly_relayout", () => placeNames(place));
  });
  dark.addEventListener("change", () => Plotly.react(place, place.data, withColours(figure.layout), options));
}

// Draws a workload, once it can be seen.
function drawn(run) {
  const place = document.getElementById(`w${run.at}-run`);
  if (place.dataset.drawn) return;
  place.dataset.drawn = "yes";
  run.figures.forEach(plot);
  if (!run.timeline) return;
  const timeline = new Timeline(place.querySelector(".gantt canvas"), place.querySelector(".tip"), run.timeline);
  timeline.legend(place.querySelector(".legend"));
  for (const button of place.querySelectorAll("[data-zoom]")) {
    button.addEventListener("click", () => timeline.scaled(Number(button.dataset.zoom)));
  }
  window.timeline = timeline;
}

for (const run of data) {
  const fold = document.querySelector(`#w${run.at}-run > details`);
  if (!fold || fold.open) drawn(run);
  fold?.addEventListener("toggle", () => fold.open && drawn(run));
}

// A link of the contents opens the workload that it leads into. Narrow pages begin with the contents closed.
for (const link of document.querySelectorAll("nav a")) {
  link.addEventListener("click", () => {
    const fold = document.querySelector(link.getAttribute("href"))?.closest("details");
    if (fold) fold.open = true;
  });
}
if (window.innerWidth <= 900) document.querySelector("nav details").open = false;
document.body.dataset.ready = "yes";
