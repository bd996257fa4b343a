// Returns accessibility faults of the page: too little contrast (WCAG 2.1, 1.4.3), and controls without a name.
const faults = [];
const channel = (value) => ((value /= 255) <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
const parsed = (text) => {
  const numbers = text.match(/[\d.]+/g).map(Number);
  return { colour: numbers.slice(0, 3), alpha: numbers[3] ?? 1 };
};
const luminance = ([red, green, blue]) => 0.2126 * channel(red) + 0.7152 * channel(green) + 0.0722 * channel(blue);
const behind = (element) => {
  for (; element; element = element.parentElement) {
    const { colour, alpha } = parsed(getComputedStyle(element).backgroundColor);
    if (alpha > 0.99) return colour;
  }
  return [255, 255, 255];
};
let seen = 0;
for (const element of document.querySelectorAll('body *')) {
  const hasText = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  const isHidden = element.closest('svg, option, .hidden, .skip, [hidden], noscript, dialog:not([open])');
  if (!hasText || isHidden || element.getBoundingClientRect().width === 0) continue;
  seen += 1;
  const [front, back] = [luminance(parsed(getComputedStyle(element).color).colour), luminance(behind(element))];
  const ratio = (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05);
  if (ratio < 4.5) faults.push(`contrast ${ratio.toFixed(2)}: ${element.outerHTML.slice(0, 120)}`);
}
if (seen < 50) faults.push(`only ${seen} texts were found`);
for (const control of document.querySelectorAll('input, select, textarea, button')) {
  const name = control.getAttribute('aria-label') || control.textContent.trim() || [...(control.labels || [])].map((label) => label.textContent.trim()).join('');
  const isShown = !control.closest('dialog:not([open])');
  const isField = control.tagName !== 'BUTTON';
  if (isShown && (!name || (isField && control.labels.length === 0))) faults.push(`no name: ${control.outerHTML.slice(0, 120)}`);
}
for (const table of document.querySelectorAll('table')) {
  if ([...table.querySelectorAll('th')].some((head) => head.scope !== 'col')) faults.push(`no scope: ${table.id}`);
}
return faults;
