/** An object whose parts are made when each is first asked for, and kept. */
export function lazily<T extends object>(makers: { readonly [K in keyof T]: () => T[K] }): T {
  const parts = {} as T;
  for (const name of Object.keys(makers) as (keyof T)[]) {
    Object.defineProperty(parts, name, {
      configurable: true,
      enumerable: true,
      get() {
        const value = makers[name]();
        Object.defineProperty(parts, name, { value, enumerable: true });
        return value;
      },
    });
  }
  return parts;
}
