import { chmodSync, chownSync, mkdtempSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { systemClock } from '../../src/daemon/system-clock.ts';
import { openInboxFile } from '../../src/store/inbox/inbox-file.ts';
import { openMirror } from '../../src/store/mirror/mirror.ts';
import { openState } from '../../src/store/state/open-state.ts';

const SERVICE = { uid: 48_211, gid: 48_212 };

test.runIf(process.geteuid?.() === 0)(
  'databases that root makes belong to the owner of the directory, log files and all',
  async () => {
    const directory = mkdtempSync(join(tmpdir(), 'tillsync-owner-'));
    chownSync(directory, SERVICE.uid, SERVICE.gid);
    chmodSync(directory, 0o2750);
    const mirror = openMirror({ path: join(directory, 'mirror.db'), clock: systemClock });
    const state = openState({ path: join(directory, 'state.db'), clock: systemClock });
    const inbox = openInboxFile({ path: join(directory, 'inbox', 'inbox.db') });
    await mirror.close();
    state.close();
    inbox.db.close();
    const owners = ['mirror.db', 'state.db']
      .flatMap((name) => [name, `${name}-wal`, `${name}-shm`])
      .concat('inbox', 'inbox/inbox.db')
      .map((name) => {
        const { uid, gid } = statSync(join(directory, name));
        return [name, uid, gid];
      });
    expect(owners).toEqual(owners.map(([name]) => [name, SERVICE.uid, SERVICE.gid]));
  },
);
