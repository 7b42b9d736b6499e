// Sets the theme that the user chose before anything is painted; not a module, so that it runs first.
(() => {
  try {
    const theme = localStorage.getItem('keb.theme');
    if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
  } catch {
    // Storage is switched off: the system's theme it is.
  }
})();
