// Light or dark, decided before anything is drawn: the visitor's last choice or, if none, the system setting. This is
// the only script that is not a module, so that it runs first.

(() => {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");

  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);

  function remembered() {
    try {
      return localStorage.getItem("theme");
    } catch {
      return null; // storage is disabled
    }
  }

  function remember(theme) {
    try {
      localStorage.setItem("theme", theme);
    } catch {
      // the choice lasts until the page is closed
    }
  }

  const theme = remembered();
  if (theme === "dark" || theme === "light") root.dataset.theme = theme;

  addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const tell = () => button.setAttribute("aria-pressed", String(isDark()));
    button.addEventListener("click", () => {
      root.dataset.theme = isDark() ? "light" : "dark";
      remember(root.dataset.theme);
      tell();
    });
    system.addEventListener("change", tell);
    tell();
  });
})();
