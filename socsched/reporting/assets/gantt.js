// Timelines: draws the part of a window of a trace that is looked at, and lets people move and select in it.
//
// Data (see gantt.py), times in ns: `start` and `end` of the window, all others counted from `start`.
//   rows:  [lane's name, engine, colour, first of its engine]
//   jobs:  [task, frame, activation, deadline, start, finish, runs, blocked, preemptions, state, jobs it took data from]
//   stays: [lane set, job or -(number of jobs drawn as one), start, length]
//   marks: [time, kind, text];  inputs: [name, times]
"use strict";
(() => {
  const ROW = 26, HEAD = 36, FOOT = 34, CHAR = 6.7, LEAST = 2000; // LEAST: ns that a view shows at least
  const STATES = ["on time", "late", "dropped", "aborted", "unfinished"];
  const esc = (text) => String(text).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
  const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

  // A duration for people: four digits, as in the rest of the page.
  function time(ns) {
    const size = Math.abs(ns);
    for (const [unit, factor] of [["s", 1e9], ["ms", 1e6], ["us", 1e3]])
      if (size >= factor) return `${+(ns / factor).toPrecision(4)} ${unit}`;
    return `${Math.round(ns)} ns`;
  }

  // A moment, with as many digits as the width of the view asks for.
  function moment(ns, span) {
    const digits = clamp(3 - Math.floor(Math.log10(span / 1e6)), 0, 6);
    return `${(ns / 1e6).toFixed(digits)} ms`;
  }

  function ticks(low, high, count) {
    const raw = (high - low) / Math.max(count, 1), magnitude = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((m) => m * magnitude).find((s) => s >= raw * 0.999);
    const found = [];
    for (let at = Math.ceil(low / step); at * step <= high; at++) found.push(at * step);
    return found;
  }

  class Gantt {
    constructor(figure) {
      this.figure = figure;
      this.data = JSON.parse(figure.querySelector("script").textContent);
      this.stage = figure.querySelector(".stage");
      this.strip = figure.querySelector(".strip");
      this.readout = figure.querySelector(".readout");
      this.detail = figure.querySelector(".detail");
      this.id = figure.id;
      this.length = this.data.end - this.data.start;
      this.selected = -1;
      this.pointers = new Map();
      this.index();
      this.view = [...this.data.view];
      this.listen();
      if (this.data.chosen >= 0) this.selected = this.data.chosen;
      new ResizeObserver(() => this.draw()).observe(this.stage);
      this.select(this.selected);
    }

    // What is asked for at every drawing: stays in order, the stays of each job, who took data from whom.
    index() {
      const { jobs, stays } = this.data;
      this.staysOf = jobs.map(() => []);
      stays.forEach((stay, i) => { if (stay[1] >= 0) this.staysOf[stay[1]].push(i); });
      this.users = jobs.map(() => []);
      jobs.forEach((job, i) => job[10].forEach((from) => this.users[from].push(i)));
      this.order = jobs.map((_, i) => i).filter((i) => this.staysOf[i].length);
      this.order.sort((a, b) => stays[this.staysOf[a][0]][2] - stays[this.staysOf[b][0]][2]);
    }

    related() {
      if (this.selected < 0) return null;
      const found = new Set([this.selected]);
      for (const next of [(i) => this.data.jobs[i][10], (i) => this.users[i]]) {
        const waiting = [this.selected];
        while (waiting.length)
          for (const other of next(waiting.pop())) if (!found.has(other)) { found.add(other); waiting.push(other); }
      }
      return found;
    }

    // -- moving

    show(from, to) {
      const span = clamp(to - from, Math.min(LEAST, this.length), this.length);
      const start = clamp((from + to) / 2 - span / 2, 0, this.length - span);
      this.view = [start, start + span];
      this.draw();
    }

    zoom(factor, at = (this.view[0] + this.view[1]) / 2) {
      const [from, to] = this.view, span = clamp((to - from) * factor, Math.min(LEAST, this.length), this.length);
      const start = at - (at - from) * span / (to - from);
      this.show(start, start + span);
    }

    pan(share) {
      const step = (this.view[1] - this.view[0]) * share;
      const moved = clamp(step, -this.view[0], this.length - this.view[1]);
      this.show(this.view[0] + moved, this.view[1] + moved);
    }

    reset() { this.show(...this.data.view); }

    at(clientX) {
      const box = this.stage.getBoundingClientRect();
      const x = clamp(clientX - box.left - this.left, 0, this.wide);
      return this.view[0] + x / this.wide * (this.view[1] - this.view[0]);
    }

    act(name) {
      const acts = {
        in: () => this.zoom(0.5), out: () => this.zoom(2), left: () => this.pan(-0.25), right: () => this.pan(0.25),
        reset: () => this.reset(), all: () => this.show(0, this.length),
        next: () => this.step(1), previous: () => this.step(-1), clear: () => this.select(-1),
      };
      acts[name]();
    }

    listen() {
      const keys = {
        "+": "in", "=": "in", "-": "out", _: "out", ArrowLeft: "left", ArrowRight: "right", ArrowUp: "in",
        ArrowDown: "out", Home: "reset", 0: "reset", End: "all", n: "next", p: "previous", Escape: "clear",
      };
      this.stage.addEventListener("keydown", (event) => {
        const act = keys[event.key];
        if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
        event.preventDefault();
        this.act(act);
      });
      for (const button of this.figure.querySelectorAll("[data-act]"))
        button.addEventListener("click", () => this.act(button.dataset.act));
      this.stage.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
      for (const name of ["pointerdown", "pointermove", "pointerup", "pointercancel"])
        this.stage.addEventListener(name, (event) => this.pointer(name, event));
      const seek = (event) => {
        const box = this.strip.getBoundingClientRect(), half = (this.view[1] - this.view[0]) / 2;
        const at = (event.clientX - box.left) / box.width * this.length;
        this.show(clamp(at - half, 0, this.length - 2 * half), clamp(at + half, 2 * half, this.length));
      };
      this.strip.addEventListener("pointerdown", (event) => { this.strip.setPointerCapture(event.pointerId); seek(event); });
      this.strip.addEventListener("pointermove", (event) => { if (event.buttons) seek(event); });
    }

    // The wheel scrolls the page until the timeline is the focus, or Ctrl is held.
    wheel(event) {
      const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey;
      if (!event.ctrlKey && !sideways && document.activeElement !== this.stage) return;
      event.preventDefault();
      if (sideways) this.pan((event.deltaX || event.deltaY) / this.wide);
      else this.zoom(2 ** clamp(event.deltaY / 200, -1, 1), this.at(event.clientX));
    }

    // One pointer drags, two pinch; a press without a move selects.
    pointer(name, event) {
      const old = this.pointers.get(event.pointerId);
      if (name === "pointerdown") {
        this.pointers.set(event.pointerId, { x: event.clientX, from: event.clientX, moved: false });
        return;
      }
      if (!old) return;
      if (name === "pointermove") {
        if (!old.moved && Math.abs(event.clientX - old.from) < 4) return;
        if (!old.moved) { old.moved = true; this.stage.setPointerCapture(event.pointerId); }
        if (this.pointers.size === 2) {
          const other = [...this.pointers.entries()].find(([id]) => id !== event.pointerId)[1];
          const before = Math.abs(old.x - other.x), after = Math.abs(event.clientX - other.x);
          if (before > 8 && after > 8) this.zoom(before / after, this.at((event.clientX + other.x) / 2));
        } else this.pan((old.x - event.clientX) / this.wide);
        old.x = event.clientX;
        return;
      }
      this.pointers.delete(event.pointerId);
      if (name === "pointerup" && !old.moved) {
        const slice = event.target.closest("[data-job]");
        this.select(slice && +slice.dataset.job !== this.selected ? +slice.dataset.job : -1);
      }
    }

    // -- selecting

    step(by) {
      if (!this.order.length) return;
      let place = this.order.indexOf(this.selected);
      if (place < 0) {
        const first = this.order.findIndex((i) => this.data.stays[this.staysOf[i][0]][2] >= this.view[0]);
        place = (first < 0 ? 0 : first) - (by > 0 ? 1 : 0);
      }
      const job = this.order[clamp(place + by, 0, this.order.length - 1)];
      const [, , start, length] = this.data.stays[this.staysOf[job][0]], span = this.view[1] - this.view[0];
      if (start < this.view[0] || start + length > this.view[1]) {
        const from = clamp(start - span / 4, 0, this.length - span);
        this.view = [from, from + span];
      }
      this.select(job);
    }

    select(job) {
      this.selected = job;
      this.detail.textContent = job < 0 ? this.detail.dataset.hint : this.describe(job);
      this.draw();
    }

    describe(i) {
      const [task, frame, activation, deadline, start, finish, runs, blocked, preemptions, state] = this.data.jobs[i];
      const places = [...new Set(this.staysOf[i].flatMap((s) => this.data.sets[this.data.stays[s][0]]))].sort((a, b) => a - b);
      const said = [
        `${this.data.tasks[task][0]} frame ${frame}: ${STATES[state]}`,
        `on ${places.map((row) => this.data.rows[row][0]).join(", ")}`,
        `ready at ${moment(activation + this.data.start, 1e6)}`,
      ];
      if (start !== null) said.push(`waited ${time(Math.max(start - activation, 0))}`);
      said.push(`ran ${time(runs)}`);
      if (preemptions) said.push(`preempted ${preemptions}×`);
      if (blocked) said.push(`blocked ${time(blocked)}`);
      if (finish !== null) {
        said.push(`ended at ${moment(finish + this.data.start, 1e6)}`);
        said.push(finish > deadline ? `${time(finish - deadline)} after its local deadline` : `${time(deadline - finish)} before its local deadline`);
      }
      return said.join(" · ");
    }

    // -- drawing

    draw() {
      const width = this.stage.clientWidth;
      if (!width) return;
      const { rows, start } = this.data, narrow = width < 560;
      this.left = narrow ? 62 : 108;
      this.wide = width - this.left - 8;
      const height = HEAD + ROW * rows.length + FOOT, [from, to] = this.view;
      this.x = (at) => this.left + (at - from) / (to - from) * this.wide;
      const related = this.related();
      const body = [
        this.patterns(), this.lanes(width), this.grid(height),
        `<g clip-path="url(#${this.id}-clip)">`, this.marks(height), this.slices(related), this.arrows(related), this.flag(height), "</g>",
        `<rect class="frame" x="${this.left}" y="${HEAD}" width="${this.wide}" height="${ROW * rows.length}"/>`,
      ];
      const span = to - from;
      const told = `${moment(from + start, span)} to ${moment(to + start, span)}`;
      this.stage.innerHTML =
        `<svg width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" role="img" aria-label="Timeline, ${told}">${body.join("")}</svg>`;
      this.readout.textContent = `${told} (${time(span)} of ${time(this.length)})`;
      this.figure.dataset.from = Math.round(from + start);
      this.figure.dataset.to = Math.round(to + start);
      this.overview();
    }

    patterns() {
      const hatch = (name, size, path) =>
        `<pattern id="${this.id}-${name}" width="${size}" height="${size}" patternUnits="userSpaceOnUse"><path d="${path}" class="hatch"/></pattern>`;
      return `<defs>${hatch("convert", 6, "M-1 1l2-2M0 6l6-6M5 7l2-2")}${hatch("lost", 7, "M0 0l7 7M7 0l-7 7")}
        <clipPath id="${this.id}-clip"><rect x="${this.left}" y="0" width="${this.wide}" height="9999"/></clipPath></defs>`;
    }

    lanes(width) {
      return this.data.rows.map(([name, , , first], i) => {
        const y = HEAD + i * ROW, room = Math.floor((this.left - 10) / 6.4);
        const shown = name.length > room ? name.slice(0, room - 1) + "…" : name;
        return `<line x1="0" x2="${width}" y1="${y}" y2="${y}" class="rule ${first ? "" : "light"}"/>` +
          `<text x="4" y="${y + 17}" class="${first ? "lane" : "axis"}">${esc(shown)}</text>`;
      }).join("");
    }

    grid(height) {
      const [from, to] = this.view, { start } = this.data, drawn = [];
      const unit = to - from < 2e9 ? 1e6 : 1e9, count = clamp(this.wide / 90, 2, 10);
      for (const tick of ticks((from + start) / unit, (to + start) / unit, count)) {
        const x = this.x(tick * unit - start);
        drawn.push(`<line x1="${x}" x2="${x}" y1="${HEAD - 4}" y2="${height - FOOT + 4}" class="grid"/>`,
          `<text x="${clamp(x, this.left + 14, this.left + this.wide - 18)}" y="${height - 17}" class="axis mid">${+tick.toPrecision(9)}</text>`);
      }
      return drawn.join("") + `<text x="${this.left + this.wide}" y="${height - 3}" class="axis end">time [${unit === 1e6 ? "ms" : "s"}]</text>`;
    }

    slices(related) {
      const { stays, sets, jobs, tasks, rows } = this.data, [from, to] = this.view, drawn = [];
      const last = rows.map(() => -1); // the pixel up to which a lane is drawn: what lies inside one pixel is one
      for (const [set, number, start, length] of stays) {
        if (start > to) break;
        if (start + length < from) continue;
        const x = Math.max(this.x(start), this.left - 4), right = Math.min(this.x(start + length), this.left + this.wide + 4);
        const width = Math.max(right - x, 1), job = number < 0 ? null : jobs[number];
        const bad = job && job[9] > 0, chosen = number >= 0 && (!related || related.has(number));
        for (const row of sets[set]) {
          if (x + width <= last[row] + 0.7 && !bad && !(related && chosen)) continue;
          last[row] = x + width;
          drawn.push(this.slice(x, HEAD + row * ROW, width, number, job, rows[row][2], related && !chosen));
        }
      }
      return drawn.join("");
    }

    slice(x, y, width, number, job, colour, dimmed) {
      const box = (fill) => `<rect x="${x.toFixed(2)}" y="${y + 3}" width="${width.toFixed(2)}" height="${ROW - 6}" rx="${Math.min(2, width / 3)}"${fill}/>`;
      if (!job) return `<g class="slice many c${colour}${dimmed ? " dimmed" : ""}"><title>${-number} jobs, too short to be shown one by one</title>${box("")}</g>`;
      const [task, frame] = job, [name, kind] = this.data.tasks[task], state = job[9];
      const classes = ["slice", `c${colour}`, frame % 2 ? "odd" : "", state ? "late" : "", dimmed ? "dimmed" : "", number === this.selected ? "chosen" : ""];
      const over = state > 1 ? "lost" : kind === "conversion" ? "convert" : "";
      const room = Math.floor((width - 6) / CHAR), label = `${state ? "✗ " : ""}${kind === "conversion" ? "⇄ " : ""}${name}`;
      const full = `${label} ${frame}`;
      const said = full.length <= room ? full : label.length <= room ? label : room >= 4 ? label.slice(0, room - 1) + "…" : "";
      return `<g class="${classes.filter(Boolean).join(" ")}" data-job="${number}"><title>${esc(this.describe(number))}</title>${box("")}` +
        (over ? box(` class="over" fill="url(#${this.id}-${over})"`) : "") +
        (said ? `<text x="${Math.max(x + 4, this.left + 3).toFixed(2)}" y="${y + 17}" class="in${over ? " halo" : ""}">${esc(said)}</text>` : "") + "</g>";
    }

    // Where the data of the selected job came from, and where it went.
    arrows(related) {
      if (!related) return "";
      const { stays, sets, jobs } = this.data, drawn = [];
      const end = (i) => stays[this.staysOf[i][this.staysOf[i].length - 1]], begin = (i) => stays[this.staysOf[i][0]];
      for (const i of related)
        for (const from of jobs[i][10]) {
          if (!related.has(from) || !this.staysOf[i].length || !this.staysOf[from].length) continue;
          const a = end(from), b = begin(i), x0 = this.x(a[2] + a[3]), x1 = this.x(b[2]);
          const y0 = HEAD + sets[a[0]][0] * ROW + ROW / 2, y1 = HEAD + sets[b[0]][0] * ROW + ROW / 2, bend = Math.max((x1 - x0) / 2, 6);
          drawn.push(`<path class="flow" d="M${x0} ${y0}C${x0 + bend} ${y0} ${x1 - bend} ${y1} ${x1} ${y1}"/><circle class="flow-end" cx="${x1}" cy="${y1}" r="2.5"/>`);
        }
      return drawn.join("");
    }

    // The deadline of the frame that is shown, and the one the selected job is scheduled by.
    flag(height) {
      const line = (at, name, row) => {
        const x = this.x(at), left = x > this.left + this.wide * 0.7;
        if (x < this.left || x > this.left + this.wide) return "";
        return `<line x1="${x}" x2="${x}" y1="${HEAD - 6}" y2="${height - FOOT}" class="limit"/><text x="${x + (left ? -4 : 4)}" y="${HEAD - 8 - 11 * row}" class="limit ${left ? "end" : ""}">${esc(name)}</text>`;
      };
      const {limit, jobs} = this.data;
      const own = this.selected < 0 ? null : jobs[this.selected][3];
      const due = limit ? line(limit[0], limit[1], 0) : "";
      return own === null || (limit && own === limit[0]) ? due : due + line(own, "local deadline", limit ? 1 : 0);
    }

    marks(height) {
      const drawn = [], [from, to] = this.view;
      const shown = this.data.marks.filter(([at]) => at >= from && at <= to);
      let before = -99;
      for (const [at, kind, said] of shown) {
        const x = this.x(at), crowded = x - before < 7;
        if (x - before < 1) continue;
        before = x;
        drawn.push(`<g><title>${esc(`${kind} at ${moment(at + this.data.start, 1e6)}: ${said}`)}</title>` +
          `<line x1="${x}" x2="${x}" y1="${HEAD - 3}" y2="${shown.length > 30 ? HEAD + 2 : height - FOOT}" class="mark"/>` +
          (crowded ? "" : `<text x="${x}" y="${HEAD - 8}" class="mark mid">${kind === "miss" ? "✗" : "!"}</text>`) + "</g>");
      }
      for (const [name, times] of this.data.inputs)
        for (const at of times)
          if (at >= from && at <= to) {
            const x = this.x(at);
            drawn.push(`<g><title>${esc(name)} frame at ${moment(at + this.data.start, 1e6)}</title><path class="input" d="M${x - 4} ${HEAD - 9}h8l-4 7z"/></g>`);
          }
      return drawn.join("");
    }

    // The whole window in a strip: where something was late, and which part of it is shown.
    overview() {
      if (!this.late) {
        const places = new Set();
        for (const [at, kind] of this.data.marks) if (kind === "miss") places.add(Math.floor(at / this.length * 500));
        this.late = [...places].map((p) => `M${p / 5} 0v10`).join("");
        const busy = new Set();
        for (const [, , start, length] of this.data.stays)
          for (let p = Math.floor(start / this.length * 500); p <= (start + length) / this.length * 500; p++) busy.add(p);
        this.busy = [...busy].map((p) => `M${p / 5} 6v4`).join("");
      }
      const share = (ns) => ns / this.length * 100, [from, to] = this.view;
      this.strip.innerHTML =
        `<svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true"><path class="busy" d="${this.busy}"/><path class="missed" d="${this.late}"/>` +
        `<rect class="shown" x="${share(from)}" y="0" width="${Math.max(share(to - from), 0.4)}" height="10"/></svg>`;
    }
  }

  const start = (figure) => { if (!figure.gantt) figure.gantt = new Gantt(figure); };
  for (const figure of document.querySelectorAll(".gantt")) start(figure);
  // On paper everything is unfolded.
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((d) => { d.open = true; }));
})();
