import Database from 'better-sqlite3';
import { programVersion } from '../version.ts';
import { type Check, well } from './check.ts';

/** What this command itself is made of. */
export function versionCheck(): Check {
  return {
    id: 'version',
    run() {
      const tillsync = programVersion();
      const { version: node } = process;
      const sqlite = sqliteVersion();
      return well(`tillsync ${tillsync}, Node ${node.slice(1)}, SQLite ${sqlite}.`, {
        tillsync,
        node,
        sqlite,
      });
    },
  };
}

function sqliteVersion(): string {
  const db = new Database(':memory:');
  try {
    return String(db.prepare('SELECT sqlite_version()').pluck().get());
  } finally {
    db.close();
  }
}
