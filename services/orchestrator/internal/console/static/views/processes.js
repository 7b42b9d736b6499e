// @ts-check
/** The view of a process as a diagram: its stages, their steps and workers, and the operations that wait there. */

import { Resource } from '../api.js';
import { clock, colour, count, dayBefore, goDuration, name as named, operationsURL, plural, sign, spelled, time, typeNames } from '../format.js';
import { shown, table, th } from '../parts.js';
import { h } from '../vdom.js';

/** Scrolls to an element when it appears. @param {Element | null} element null when it is removed */
const intoView = (element) => element && requestAnimationFrame(() => element.scrollIntoView({ block: 'center' }));

const builtIn = 'orchestrator';
/** The reasons that are counted beside all operations at a step, the worst first. */
const counted = ['no_worker', 'no_answer', 'failing', 'slow', 'held', 'limited', 'event', 'polling'];

/**
 * @param {import('../parts.js').Context} ctx
 * @returns {import('../parts.js').View}
 */
export function processes(ctx) {
  const chosen = ctx.parts[1] ?? Object.keys(typeNames)[0];
  let params = ctx.params;
  const definitions = new Resource(ctx.api, '/processes', { changed: ctx.update, every: 60_000 });
  const workers = new Resource(ctx.api, '/workers', { changed: ctx.update, every: 4000 });
  const figures = new Resource(ctx.api, `/steps?type=${encodeURIComponent(chosen)}`, { changed: ctx.update, every: 4000 });
  const overlays = new Resource(ctx.api, '/overlays', { changed: ctx.update, every: 10_000 });
  const versions = new Resource(ctx.api, '/overlays/versions?page_size=5', { changed: ctx.update, every: 10_000 });
  const all = chosen in typeNames ? [definitions, workers, figures, overlays, versions] : [definitions, overlays, versions];
  const resume = () => all.forEach((r) => r.refresh());
  resume();
  return {
    title: () => `Process ${typeNames[chosen] ?? chosen}`,
    resume,
    close: () => all.forEach((r) => r.close()),
    query: (next) => {
      params = next;
    },
    render: () => [
      h('div', { class: 'head' }, h('h1', null, 'Processes'), h('p', { class: 'muted small' }, figures.at ? `as of ${clock(figures.at)}` : '')),
      h('nav', { class: 'tabs', 'aria-label': 'Processes' }, h('ul', null, Object.entries(typeNames).map(([type, name]) => h('li', null,
        h('a', { href: `/console/processes/${type}`, 'aria-current': type === chosen ? 'page' : undefined }, name))))),
      shown(definitions, (d) => {
        const p = d.data.find((/** @type {any} */ x) => x.operation === chosen);
        return p ? diagram(p) : h('div', { class: 'empty' }, h('p', null, `No process for ${chosen}.`));
      }),
      shown(overlays, (o) => overlayPart(o)),
    ],
  };

  /** The overlays in use, their newest versions, and the problem of rejected ones. @param {any} o */
  function overlayPart(o) {
    const list = versions.data?.data ?? [];
    const now = ctx.now();
    return h('section', { 'aria-labelledby': 'overlays' },
      h('h2', { id: 'overlays' }, 'Overlays'),
      o.problem ? h('p', { class: 'text-bad', role: 'status' }, sign('failed'), ' The newest overlays were rejected ', time(o.problemSince, now), `; the last valid ones apply. ${o.problem}`) : null,
      h('p', { class: 'muted' }, o.inUse ? `New operations use version ${o.inUse} of the applied overlays` : o.problem ? 'New operations use the processes that applied last' : 'No overlay is applied',
        o.files.length ? `, after the files ${o.files.map((/** @type {any} */ f) => f.name).join(', ')}.` : '.'),
      o.applied.length ? table('Applied overlays', [th('Overlay'), th('Version'), th('Applied'), th('By'), th('Digest')], o.applied.map((/** @type {any} */ a) => h('tr', { key: a.name },
        h('td', null, a.name), h('td', null, count(a.version)), h('td', null, time(a.appliedAt, now)), h('td', null, a.appliedBy), h('td', { class: 'mono', title: a.digest }, a.digest.slice(0, 12))))) : null,
      list.length ? table('Newest versions of the applied overlays', [th('Version'), th('Change'), th('Time'), th('By')], list.map((/** @type {any} */ v) => h('tr', { key: v.version },
        h('td', null, count(v.version)), h('td', null, v.action === 'rollback' ? `rollback to version ${v.restored}` : `${v.action} ${v.name}`), h('td', null, time(v.time, now)), h('td', null, v.by)))) : null);
  }

  /** @param {any} p */
  function diagram(p) {
    const steps = p.stages.reduce((/** @type {number} */ n, /** @type {any} */ s) => n + s.steps.length, 0);
    return [
      h('p', { class: 'muted' }, `${plural(p.stages.length, 'stage')}, ${plural(steps, 'step')}; times out after ${goDuration(p.timeout)}. A completed stage never runs again. `,
        h('a', { href: operationsURL({ type: p.operation, state: 'in progress' }) }, 'Operations in progress')),
      h('ol', { class: 'diagram', 'aria-label': 'Stages' }, p.stages.map((/** @type {any} */ stage, /** @type {number} */ i) => h('li', { key: stage.name, class: 'box' },
        h('h2', null, h('span', { class: 'ordinal', 'aria-hidden': 'true' }, i + 1), stage.name, stage.finally ? h('span', { class: 'muted' }, ' always runs') : null),
        h('ol', { class: 'nodes', 'aria-label': `Steps of ${stage.name}` }, stage.steps.map((/** @type {any} */ s) => node(p, stage.name, s)))))),
    ];
  }

  /** @param {{ every: string, timeout: string }} budget */
  function limit(budget) {
    return `every ${goDuration(budget.every)} ${/[1-9]/.test(budget.timeout) ? `for ${goDuration(budget.timeout)}` : 'until the operation times out'}`;
  }

  /**
   * @param {any} p
   * @param {string} stage
   * @param {any} s
   */
  function node(p, stage, s) {
    const dead = s.worker !== builtIn && (workers.data?.data ?? []).some((/** @type {any} */ w) => w.name === s.worker && w.missingSteps.includes(s.name));
    const counts = (figures.data?.data ?? []).find((/** @type {any} */ x) => x.stage === stage && x.step === s.name);
    // The order of the reasons does not depend on their counts, so that nothing moves.
    const groups = counted.filter((reason) => counts?.waiting[reason]).map((reason) => ({ reason, count: counts.waiting[reason] }));
    const marked = params.get('step') === s.name;
    return h('li', {
      key: s.name, class: `node ${dead ? 'dead' : ''} ${marked ? 'marked' : ''} ${s.worker === builtIn ? 'built-in' : ''}`, 'aria-current': marked ? 'step' : undefined,
      ref: marked ? intoView : undefined,
    },
      h('h3', null, named(s.name)),
      h('p', { class: 'by' }, s.worker === builtIn ? 'the orchestrator' : h('a', { href: `/console/workers?worker=${encodeURIComponent(s.worker)}` }, s.worker)),
      dead ? h('p', { class: 'text-bad' }, sign('missing'), 'no live worker') : null,
      counts?.operations ? h('p', null, h('a', { href: operationsURL({ type: p.operation, step: s.name }) }, `${plural(counts.operations, 'operation')} here`)) : null,
      groups.map((/** @type {any} */ g) => h('p', { key: g.reason }, h('a', { class: `text-${colour(g.reason)}`, href: operationsURL({ type: p.operation, step: s.name, waiting: g.reason }) },
        sign(g.reason), `${count(g.count)} ${spelled(g.reason)}`))),
      counts?.failedLastDay ? h('p', null, h('a', { class: 'text-bad', href: operationsURL({ type: p.operation, step: s.name, state: 'failed', finished_since: dayBefore(ctx.now()) }) },
        sign('failed'), `${count(counts.failedLastDay)} failed in 24 h`)) : null,
      s.when ? h('p', { class: 'when' }, h('span', { class: 'muted' }, 'if '), h('code', null, s.when)) : null,
      s.worker === builtIn ? null : h('dl', { class: 'limits' },
        h('div', null, h('dt', null, 'retry'), h('dd', null, `${limit(s.retry)}${s.retry.scope === 'step' ? ', only this step' : ''}`)),
        s.wait ? h('div', null, h('dt', null, 'wait'), h('dd', null, limit(s.wait))) : null,
        h('div', null, h('dt', null, 'execution'), h('dd', null, goDuration(s.execution))),
        s.onTimeout === 'skip' || s.onFailure === 'skip' ? h('div', null, h('dt', null, 'skipped'), h('dd', null,
          [s.onFailure === 'skip' ? 'on failure' : '', s.onTimeout === 'skip' ? 'when a budget is exhausted' : ''].filter(Boolean).join(', '))) : null));
  }
}
