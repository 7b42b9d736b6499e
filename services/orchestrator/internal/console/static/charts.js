// @ts-check
/** Charts, each with a table of the same figures. */

import { clock, count, minutes, zone } from './format.js';
import { h } from './vdom.js';

const width = 1000;
const height = 160;

/** Returns the upper end of an axis that includes a number. @param {number} n */
export function ceiling(n) {
  if (n <= 4) return 4;
  const power = 10 ** Math.floor(Math.log10(n));
  for (const factor of [1, 1.2, 1.6, 2, 2.4, 3, 4, 5, 6, 8, 10]) if (factor * power >= n) return Math.ceil(factor * power);
  return n;
}

/**
 * Renders stacked bars over time.
 * @param {{title: string, unit: string, at: string[], series: {name: string, colour: string, values: number[]}[]}} chart
 */
export function bars(chart) {
  const n = chart.at.length;
  const sums = chart.at.map((_, i) => chart.series.reduce((sum, s) => sum + (s.values[i] ?? 0), 0));
  const top = ceiling(Math.max(0, ...sums));
  const step = width / Math.max(1, n);
  const total = sums.reduce((a, b) => a + b, 0);
  const shapes = [];
  for (let i = 0; i < n; i++) {
    let y = height;
    for (const s of chart.series) {
      const tall = ((s.values[i] ?? 0) / top) * height;
      if (!tall) continue;
      y -= tall;
      shapes.push(h('rect', {
        key: `${s.name}${i}`, class: `fill-${s.colour}`, x: (i * step + step * 0.12).toFixed(2), y: y.toFixed(2), width: (step * 0.76).toFixed(2),
        height: tall.toFixed(2),
      }, h('title', null, `${clock(chart.at[i])}: ${count(s.values[i])} ${s.name}`)));
    }
  }
  const labels = n ? [0, 1, 2, 3, 4].map((q) => chart.at[Math.min(n - 1, Math.round((q / 4) * (n - 1)))]) : [];
  return h('figure', { class: 'chart' },
    h('figcaption', null, h('h3', null, chart.title),
      h('ul', { class: 'legend' }, chart.series.map((s) => h('li', null, h('span', { class: `swatch fill-${s.colour}`, 'aria-hidden': 'true' }),
        `${s.name} `, h('b', null, count(s.values.reduce((a, b) => a + b, 0))))))),
    h('div', { class: 'plot' },
      h('div', { class: 'y-axis', 'aria-hidden': 'true' }, h('span', null, count(top)), h('span', null, count(top / 2)), h('span', null, '0')),
      h('svg', {
        viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: 'none', role: 'img',
        'aria-label': `${chart.title}: ${count(total)} ${chart.unit}, at most ${count(Math.max(0, ...sums))} in a bar; the table below has the figures`,
      }, [0, 0.5, 1].map((q) => h('line', { class: 'grid', x1: 0, x2: width, y1: q * height, y2: q * height })), shapes),
      h('div', { class: 'x-axis', 'aria-hidden': 'true' }, labels.map((at, i) => h('span', null, minutes(at), i === labels.length - 1 ? ` ${zone(at)}` : '')))),
    h('details', { class: 'figures' }, h('summary', null, 'Figures'),
      h('div', { class: 'scroll short', tabindex: '0', role: 'group', 'aria-label': `${chart.title}, figures` },
        h('table', null, h('caption', { class: 'visually-hidden' }, chart.title),
          h('thead', null, h('tr', null, h('th', { scope: 'col' }, 'From'), chart.series.map((s) => h('th', { scope: 'col', class: 'number' }, s.name)))),
          h('tbody', null, chart.at.map((at, i) => ({ at, i })).reverse().map(({ at, i }) => h('tr', { key: at },
            h('th', { scope: 'row' }, clock(at)), chart.series.map((s) => h('td', { class: 'number' }, count(s.values[i] ?? 0))))))))));
}

/**
 * Renders a bar that shows the shares of a total.
 * @param {{name: string, colour: string, value: number}[]} shares
 * @param {string} label
 */
export function share(shares, label) {
  const total = shares.reduce((sum, s) => sum + s.value, 0);
  let x = 0;
  return h('svg', { class: 'share', viewBox: '0 0 100 8', preserveAspectRatio: 'none', role: 'img', 'aria-label': label },
    h('rect', { class: 'track', x: 0, y: 0, width: 100, height: 8 }),
    shares.filter((s) => s.value > 0).map((s) => {
      const w = (s.value / total) * 100;
      const rect = h('rect', { class: `fill-${s.colour}`, x: x.toFixed(3), y: 0, width: w.toFixed(3), height: 8 },
        h('title', null, `${s.name}: ${count(s.value)}`));
      x += w;
      return rect;
    }));
}
