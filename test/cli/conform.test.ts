import { expect, it } from 'vitest';
import { invoke } from './invoke.ts';

it('conform refuses ids that no behaviour has, and shows the environment of a till', async () => {
  for (const ids of ['39', '0', 'x', '1,']) {
    const { code, stderr } = await invoke(['conform', '--only', ids, '--', 'true']);
    expect(code).toBe(2);
    expect(stderr).toContain(`--only: found "${ids}"; allowed: numbers from 1 to 38, such as 3,5.`);
  }
  const { code, stdout } = await invoke(['conform', '--help']);
  expect(code).toBe(0);
  for (const name of ['TILL_MIRROR', 'TILL_INBOX', 'TILL_URL', 'TILL_KEY', 'TILL_ARTICLES'])
    expect(stdout).toContain(name);
});
