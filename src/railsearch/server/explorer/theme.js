// The theme: automatic, light or dark. The choice stays in this browser.

const NAME = "railsearch-theme";
const ORDER = ["automatic", "light", "dark"];
const SIGNS = { automatic: "◐", light: "☀︎", dark: "☾" };

export function startTheme(button) {
  let stored = null;
  try { stored = localStorage.getItem(NAME); } catch { /* storage may be forbidden: the choice then lasts for this page */ }
  let theme = ORDER.includes(stored) ? stored : ORDER[0];
  const apply = () => {
    if (theme === "automatic") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    button.textContent = SIGNS[theme];
    button.setAttribute("aria-label", `Theme: ${theme}`);
    button.title = `Theme: ${theme}`;
  };
  button.addEventListener("click", () => {
    theme = ORDER[(ORDER.indexOf(theme) + 1) % ORDER.length];
    try { localStorage.setItem(NAME, theme); } catch { /* as above */ }
    apply();
  });
  apply();
}
