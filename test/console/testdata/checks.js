// Finds what keeps people from using the page, as a list of sentences.
(() => {
  const problems = [];
  const say = (text, e) => problems.push(`${text}: <${e.localName} class="${e.getAttribute('class') ?? ''}"> ${(e.textContent ?? '').trim().slice(0, 60)}`);
  const visible = (e) => e.checkVisibility({ visibilityProperty: true }) && !e.closest('.visually-hidden');

  const name = (e) => {
    const labels = (e.getAttribute('aria-labelledby') ?? '').split(/\s+/).map((id) => document.getElementById(id)?.textContent ?? '').join(' ');
    return (e.getAttribute('aria-label') || labels || [...(e.labels ?? [])].map((l) => l.textContent).join(' ') || e.textContent || e.getAttribute('title') || '').trim();
  };
  for (const e of document.querySelectorAll('input, select, textarea')) if (visible(e) && !name(e)) say('a field has no label', e);
  for (const e of document.querySelectorAll('a[href], button, summary, [role="img"], dialog')) if (visible(e) && !name(e)) say('there is no name', e);
  for (const e of document.querySelectorAll('[tabindex]')) if (e.tabIndex > 0) say('a positive tabindex', e);
  for (const e of document.querySelectorAll('img')) if (!e.hasAttribute('alt')) say('an image has no alt', e);
  for (const e of document.querySelectorAll('svg:not([role="img"])')) if (!e.closest('[aria-hidden="true"]')) say('a picture is neither named nor hidden', e);

  if (!document.documentElement.lang) problems.push('the page has no language');
  if (!document.title) problems.push('the page has no title');
  if (document.querySelectorAll('main').length !== 1) problems.push('there is not exactly one main');
  if (!document.querySelector('nav[aria-label]')) problems.push('the navigation has no name');

  let level = 0;
  for (const e of document.querySelectorAll('h1, h2, h3, h4, h5, h6')) {
    const next = Number(e.localName[1]);
    if (next > level + 1) say(`a heading of level ${next} follows level ${level}`, e);
    level = next;
  }
  if (document.querySelectorAll('h1').length !== 1) problems.push('there is not exactly one heading of level 1');

  const ids = new Set();
  for (const e of document.querySelectorAll('[id]')) {
    if (ids.has(e.id)) say(`the id ${e.id} is duplicated`, e);
    ids.add(e.id);
  }
  for (const e of document.querySelectorAll('[aria-labelledby], [aria-describedby]')) {
    for (const id of `${e.getAttribute('aria-labelledby') ?? ''} ${e.getAttribute('aria-describedby') ?? ''}`.split(/\s+/).filter(Boolean)) {
      if (!document.getElementById(id)) say(`it is described by ${id}, which is not there`, e);
    }
  }
  for (const e of document.querySelectorAll('table')) {
    if (!e.querySelector('thead th[scope="col"]') || !e.caption) say('a table has no head or no caption', e);
  }
  for (const e of document.querySelectorAll('*')) {
    const style = getComputedStyle(e);
    if (/auto|scroll/.test(style.overflowX + style.overflowY) && e.scrollWidth > e.clientWidth && visible(e)) {
      const reachable = e.tabIndex >= 0 || e.querySelector('a[href], button:not(:disabled)') || e === document.scrollingElement;
      if (!reachable) say('what scrolls cannot be reached with the keyboard', e);
    }
  }
  if (document.documentElement.scrollWidth > document.documentElement.clientWidth) {
    problems.push(`the page is wider than the screen: ${document.documentElement.scrollWidth} > ${document.documentElement.clientWidth}`);
  }

  // Contrast of what is really painted. Only plain colours are used, so that what is behind a text is the nearest colour.
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const parse = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const over = (front, back) => front.slice(0, 3).map((c, i) => (c * front[3] + back[i] * (255 - front[3])) / 255);
  const behind = (e) => {
    const layers = [];
    for (let at = e; at; at = at.parentElement) {
      const c = parse(getComputedStyle(at).backgroundColor);
      if (c[3] > 0) layers.push(c);
      if (c[3] === 255) break;
    }
    return layers.reverse().reduce((back, c) => over(c, back), [255, 255, 255]);
  };
  const luminance = (rgb) => rgb.map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const seen = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const e = walker.currentNode.parentElement;
    if (!walker.currentNode.nodeValue.trim() || !visible(e) || seen.has(e) || e.closest(':disabled, noscript, svg, option')) continue;
    seen.add(e);
    const back = behind(e);
    const front = over(parse(getComputedStyle(e).color), back);
    const [a, b] = [luminance(front), luminance(back)];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) say(`a contrast of ${ratio.toFixed(2)}`, e);
  }
  return problems;
})()
