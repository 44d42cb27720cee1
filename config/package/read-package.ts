import { readFileSync } from 'node:fs';
import path from 'node:path';

/** What package.json and the changelog say of tillsync. */
export interface PackageFacts {
  name: string;
  version: string;
  description: string;
  /** Who made the newest entry of the changelog: `Name <address>`. */
  maintainer: string;
  /** The newest entry's date, in seconds since the epoch. */
  releasedAt: number;
  /** As deb-changelog(5) has it. */
  changelog: string;
}

/** Throws where the changelog's newest entry is of another version. */
export function readPackage(root: string): PackageFacts {
  const { name, version, description } = JSON.parse(
    readFileSync(path.join(root, 'package.json'), 'utf8'),
  ) as Pick<PackageFacts, 'name' | 'version' | 'description'>;
  const changelog = readFileSync(path.join(root, 'config/package/debian/changelog'), 'utf8');
  const [, newest] = /^tillsync \(([^)]+)\)/.exec(changelog) ?? [];
  if (newest !== version) {
    throw new Error(
      `package.json says version ${version}, config/package/debian/changelog begins with ${newest}. Write what is new into the changelog.`,
    );
  }
  const [, maintainer = '', date = ''] = /^ -- (.+>) {2}(.+)$/m.exec(changelog) ?? [];
  return { name, version, description, maintainer, releasedAt: Date.parse(date) / 1000, changelog };
}
