import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';

/** Facts about tillsync from package.json and CHANGELOG.md. */
export interface PackageFacts {
  name: string;
  /** Version of the build, as `buildVersion` returns it. */
  version: string;
  description: string;
  /** `author` of package.json: `Name <address>`. */
  maintainer: string;
  /** Noon UTC on the date of the newest changelog entry, in seconds since 1970. */
  releasedAt: number;
  /** Changelog in the format of deb-changelog(5). */
  changelog: string;
}

/** Returns the facts. Throws if the newest changelog entry is of another version than package.json. */
export function readPackage(root: string): PackageFacts {
  const { name, version, description, author } = JSON.parse(
    readFileSync(path.join(root, 'package.json'), 'utf8'),
  ) as Pick<PackageFacts, 'name' | 'version' | 'description'> & { author: string };
  const entries = readChangelog(readFileSync(path.join(root, 'CHANGELOG.md'), 'utf8'));
  const [newest] = entries;
  if (newest?.version !== version) {
    throw new Error(
      `package.json says version ${version}, CHANGELOG.md begins with ${newest?.version ?? 'none'}. Write what is new into CHANGELOG.md.`,
    );
  }
  const built = buildVersion(root, version);
  const [first, ...earlier] = [{ ...newest, version: built }, ...entries.slice(1)];
  const changelog = [first, ...earlier].map((entry) => debianEntry(name, entry, author)).join('\n');
  return {
    name,
    version: built,
    description,
    maintainer: author,
    releasedAt: noonOf(newest) / 1000,
    changelog,
  };
}

/**
 * Returns the version of the present commit: `0.1.0` if the commit has the tag v0.1.0 or git knows no commit. Otherwise
 * it is like `0.1.0+812.g5d62668e1`, which apt sorts after 0.1.0 and after builds with fewer commits.
 */
export function buildVersion(root: string, version: string): string {
  const git = (...words: string[]) => {
    const { status, stdout } = spawnSync('git', ['-C', root, ...words], { encoding: 'utf8' });
    return status === 0 ? stdout.trim() : undefined;
  };
  const commits = git('rev-list', '--count', 'HEAD');
  const commit = git('rev-parse', '--short=9', 'HEAD');
  if (commits === undefined || commit === undefined) return version;
  if (git('tag', '--points-at', 'HEAD')?.split('\n').includes(`v${version}`)) return version;
  return `${version}+${commits}.g${commit}`;
}

interface ChangelogEntry {
  version: string;
  /** Date, such as `2026-11-22`. */
  day: string;
  /** Texts of the changes. A text may have several lines. */
  changes: string[];
}

/**
 * Returns the entries of CHANGELOG.md, newest first. An entry has the heading `## 0.1.0, 2026-11-22` and a list of
 * changes, each of which begins with `-`.
 */
function readChangelog(text: string): ChangelogEntry[] {
  return text
    .split(/^## /m)
    .slice(1)
    .map((section) => {
      const [, version = '', day = ''] = /^(\S+), (\d{4}-\d{2}-\d{2})$/m.exec(section) ?? [];
      const [, ...changes] = section.split(/^- /m).map((change) => change.trim());
      return { version, day, changes };
    });
}

function debianEntry(name: string, entry: ChangelogEntry, maintainer: string): string {
  const changes = entry.changes.map((change) => `  * ${change.replace(/\n\s*/g, '\n    ')}`);
  const date = new Date(noonOf(entry)).toUTCString().replace('GMT', '+0000');
  return `${name} (${entry.version}) stable; urgency=medium\n\n${changes.join('\n')}\n\n -- ${maintainer}  ${date}\n`;
}

function noonOf({ day }: ChangelogEntry): number {
  return Date.parse(`${day}T12:00:00Z`);
}
