// What is wider or higher than its place can be reached, and scrolled, with keys: Safari does not see to that itself.
export function scrollable(node: HTMLElement): () => void {
  const look = (): void => {
    const overflows = node.scrollWidth > node.clientWidth || node.scrollHeight > node.clientHeight;
    if (overflows) node.tabIndex = 0;
    else node.removeAttribute("tabindex");
  };
  const observer = new ResizeObserver(look);
  observer.observe(node);
  for (const child of node.children) observer.observe(child);
  return () => observer.disconnect();
}
