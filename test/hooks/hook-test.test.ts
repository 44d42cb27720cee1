import { expect, it } from 'vitest';
import type { HookSettings } from '../../src/hooks/hook.ts';
import { namedHook } from '../../src/hooks/hook-test.ts';

const hook = (name: string) => ({ name }) as HookSettings;

it('namedHook refuses an unknown name with the names that there are', () => {
  const hooks = [hook('printer'), hook('screen')];
  expect(namedHook({ hooks }, 'screen')).toBe(hooks[1]);
  expect(() => namedHook({ hooks }, 'scren')).toThrow(
    expect.objectContaining({
      code: 'not-found',
      message: 'No hook scren is configured; there are: printer, screen.',
    }),
  );
  expect(() => namedHook({ hooks: [] }, 'x')).toThrow(/there are: none/);
});
