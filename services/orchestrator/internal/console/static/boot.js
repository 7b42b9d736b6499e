// Runs before the first paint, so it is not a module: it sets the user's theme, and reloads the page if its
// scripts cannot be loaded, for example during a rollout.
(() => {
  try {
    const theme = localStorage.getItem('keb.theme');
    if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
  } catch {
    // Storage is disabled: use the system's theme.
  }
  addEventListener('error', (e) => {
    if (!(e.target instanceof HTMLScriptElement)) return;
    const place = document.getElementById('boot');
    if (place) place.textContent = 'The console could not be loaded. Trying again…';
    setTimeout(() => location.reload(), 3000);
  }, true);
})();
