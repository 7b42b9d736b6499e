// Runs before anything is painted, so it is no module: it sets the theme that the user chose, and loads the page again when its
// scripts do not come, for example because another release is being rolled out.
(() => {
  try {
    const theme = localStorage.getItem('keb.theme');
    if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
  } catch {
    // Storage is switched off: the system's theme it is.
  }
  addEventListener('error', (e) => {
    if (!(e.target instanceof HTMLScriptElement)) return;
    const place = document.getElementById('boot');
    if (place) place.textContent = 'The console could not be loaded. Trying again…';
    setTimeout(() => location.reload(), 3000);
  }, true);
})();
