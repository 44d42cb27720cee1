import { expect, it } from 'vitest';
import { openWorkplace } from '../support/workplace.ts';

const isRoot = process.getuid?.() === 0;

it.skipIf(!isRoot)(
  'a daemon in another PID namespace (needs root) is seen to run, and is not taken for dead',
  async () => {
    const place = await openWorkplace(31);
    try {
      const daemon = await place.run('unshare', '--pid', '--fork', '--kill-child', '--mount-proc');
      const status = await place.command('status', '--json');
      expect(JSON.parse(status.stdout)).toMatchObject({ running: true });
      const refreshed = await place.command('auth', 'refresh');
      expect(refreshed).toMatchObject({ code: 0 });
      expect(place.sandbox.control.violations()).toEqual([]);
      expect(place.sandbox.control.deadRefreshUses()).toEqual([]);
      await daemon.end('SIGKILL');
    } finally {
      await place.close();
    }
  },
);
