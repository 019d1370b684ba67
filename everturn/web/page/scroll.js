// Where the transcript stands in its frame, what of it is in view, and when it moves by itself.

/** Opens at what waits, else at the end, and stays at the end for one who is there; elsewhere for all others. */
export class Scroll {
  #atEnd = true;
  #touched = false; // somebody has scrolled, clicked or pressed a key: what opens goes nowhere by itself any more
  #height = 0;
  #target = null;

  constructor(frame, root) {
    this.frame = frame;
    this.root = root;
    this.observer = new ResizeObserver(() => this.#settle());
    this.observer.observe(root);
    this.leaving = new AbortController();
    const { signal } = this.leaving;
    for (const kind of ["wheel", "touchmove", "pointerdown", "keydown"]) {
      frame.addEventListener(kind, () => (this.#touched = true), { signal, passive: true });
    }
    frame.addEventListener("scroll", () => {
      // Text that comes in, and rows that are measured, scroll as well: only a person leaves the end.
      if (frame.scrollHeight === this.#height) this.#atEnd = frame.scrollHeight - frame.scrollTop - frame.clientHeight < 60;
    }, { signal, passive: true });
    root.addEventListener("click", () => this.stay(), { signal }); // what unfolds must not move away
  }

  stop() {
    this.observer.disconnect();
    this.leaving.abort();
  }

  stay() {
    this.#atEnd = false;
    this.#touched = true;
  }

  opensAt(node) {
    if (this.#touched) return;
    this.#target = node;
    this.#settle();
  }

  toEnd() {
    this.#atEnd = true;
    this.#target = null;
    this.#settle();
  }

  shows(node) {
    const { top, bottom, height } = node.getBoundingClientRect();
    const frame = this.frame.getBoundingClientRect();
    // All of it, or its end where it is too long, has to be in view.
    return bottom <= frame.bottom + 1 && (top >= frame.top - 1 || (height > frame.height && bottom > frame.top));
  }

  bring(node, block = "") {
    this.#atEnd = false;
    this.#target = null;
    node.scrollIntoView({ block: block || (node.clientHeight > this.frame.clientHeight ? "end" : "center") });
  }

  #settle() {
    const target = this.#target?.isConnected && !this.#touched ? this.#target : null;
    if (target) target.scrollIntoView({ block: target.clientHeight > this.frame.clientHeight ? "end" : "center" });
    else if (this.#atEnd) this.frame.scrollTo(0, this.frame.scrollHeight);
    this.#height = this.frame.scrollHeight;
  }
}
