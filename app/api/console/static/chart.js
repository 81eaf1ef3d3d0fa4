// Line charts over time as SVG. The arrow keys and the pointer move a cursor; its values are shown below the chart.
import { bytes, h, show, svg, time } from "./dom.js";

const HEIGHT = 120;
const LEFT = 46;
const BOTTOM = 14;

function ceiling(most, isBytes) {
  if (!(most > 0)) return 1;
  if (isBytes) return 2 ** Math.ceil(Math.log2(most));
  const power = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 2.5, 5, 10].map((step) => step * power).find((step) => step >= most);
}

function path(values, x, y) {
  let text = "";
  let isDown = false;
  values.forEach((value, index) => {
    if (value === null || value === undefined) {
      // Lines connect the measured points across gaps.
      return;
    }
    text += `${isDown ? "L" : "M"}${x(index).toFixed(1)},${y(value).toFixed(1)}`;
    isDown = true;
  });
  return text;
}

export function lineChart(title, format) {
  const plot = svg("svg", { "aria-hidden": "true" });
  const output = h("output", { "aria-live": "off" });
  const legend = h("span", { class: "legend" });
  const figure = h("figure", { class: "chart", tabindex: "0", role: "group", "aria-label": title },
    h("figcaption", null, h("h3", null, title), legend), plot, output);
  let data = { at: [], series: [] };
  let cursor = null;
  let width = 0;

  function draw() {
    const { at, series } = data;
    if (!width) return;
    plot.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    const most = Math.max(0, ...series.flatMap((line) => line.values.map((value) => value ?? 0)));
    const top = ceiling(most, format === bytes);
    const x = (index) => LEFT + ((width - LEFT - 4) * index) / Math.max(at.length - 1, 1);
    const y = (value) => HEIGHT - BOTTOM - ((HEIGHT - BOTTOM - 8) * value) / top;
    const shown = [0, 0.5, 1].map((share) =>
      [svg("line", { class: "axis", x1: LEFT, x2: width, y1: y(top * share), y2: y(top * share) }),
        svg("text", { x: LEFT - 5, y: y(top * share) + 3, "text-anchor": "end" }, format(top * share))]);
    series.forEach((line, index) => shown.push(svg("path", { class: `line s${index % 4}`, d: path(line.values, x, y) })));
    if (cursor !== null && cursor < at.length) {
      shown.push(svg("line", { class: "cursor", x1: x(cursor), x2: x(cursor), y1: 4, y2: HEIGHT - BOTTOM }));
    }
    if (at.length) {
      shown.push(svg("text", { x: LEFT, y: HEIGHT - 2 }, time(at[0]).slice(11, 19)),
        svg("text", { x: width - 2, y: HEIGHT - 2, "text-anchor": "end" }, time(at.at(-1)).slice(11, 19)));
    }
    show(plot, shown);
    const index = cursor ?? at.length - 1;
    output.textContent = at.length
      ? `${cursor === null ? "Now" : time(at[index]).slice(11, 19)}: ` +
        series.map((line) => `${line.name} ${line.values[index] == null ? "–" : format(line.values[index])}`).join(" · ")
      : "No data yet.";
  }

  function move(to) {
    cursor = Math.max(0, Math.min(data.at.length - 1, to));
    draw();
  }
  figure.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || !data.at.length) return;
    event.preventDefault();
    output.setAttribute("aria-live", "polite");
    move((cursor ?? data.at.length - 1) + step);
  });
  plot.addEventListener("pointermove", (event) => {
    const box = plot.getBoundingClientRect();
    const share = (((event.clientX - box.left) / box.width) * width - LEFT) / (width - LEFT - 4);
    if (data.at.length) move(Math.round(share * (data.at.length - 1)));
  });
  const leave = () => { cursor = null; output.setAttribute("aria-live", "off"); draw(); };
  plot.addEventListener("pointerleave", leave);
  figure.addEventListener("blur", leave);

  new ResizeObserver(([entry]) => {
    width = Math.round(entry.contentRect.width);
    draw();
  }).observe(figure);

  return {
    element: figure,
    update(at, series) {
      data = { at, series };
      show(legend, series.length > 1 && series.map((line, index) => h("span", null, h("i", { class: `s${index % 4}` }), line.name)));
      draw();
    },
  };
}

export function spark(values, label) {
  const known = values.filter((value) => value !== null && value !== undefined);
  const most = Math.max(1, ...known);
  const d = path(values, (index) => 1 + (118 * index) / Math.max(values.length - 1, 1), (value) => 20 - (18 * value) / most);
  return svg("svg", { class: "spark", viewBox: "0 0 120 22", role: "img", "aria-label": label }, svg("path", { d }));
}
