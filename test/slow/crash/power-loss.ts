import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  chownSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { NODE } from '../../support/workplace.ts';

export interface PowerLossOptions {
  /** Directory for the built library and the images, outside `root`. */
  directory: string;
  /** The directory whose unsynced bytes a power cut loses. */
  root: string;
  /** Ending of the paths of files that are lost although they were synced, as on a disk that lies. */
  lies?: string;
}

/** A model of a power cut. Unsynced changes are lost, those of file contents and of directory entries separately. */
export interface PowerLoss {
  /** Environment for every process that writes below the root. */
  env: Record<string, string>;
  /** Treats the files that exist now as synced. */
  adopt(): void;
  /** Restores the files to their synced state. Every process that had the root open must be dead. */
  cut(): void;
}

const SYNC_ALL = `
  const { closeSync, fsyncSync, openSync, readdirSync } = require('node:fs');
  const sync = (path) => { const file = openSync(path, 'r'); fsyncSync(file); closeSync(file); };
  const root = process.env.SYNCED_ROOT;
  for (const name of readdirSync(root, { recursive: true })) sync(root + '/' + name);
  sync(root);`;

/** Returns a model of a power cut. Compiles a library that records what is synced; needs `apt-get install -y gcc`. */
export function openPowerLoss({ directory, root, lies }: PowerLossOptions): PowerLoss {
  const library = path.join(directory, 'synced-images.so');
  const images = path.join(directory, 'images');
  const source = path.join(import.meta.dirname, 'synced-images.c');
  execFileSync('gcc', ['-shared', '-fPIC', '-O2', '-Wall', '-o', library, source, '-ldl']);
  const env = {
    LD_PRELOAD: library,
    SYNCED_ROOT: root,
    SYNCED_IMAGES: images,
    ...(lies !== undefined && { SYNCED_LIES: lies }),
  };
  const adopt = () => {
    rmSync(images, { recursive: true, force: true });
    mkdirSync(images);
    const { SYNCED_LIES: _, ...honest } = env as Record<string, string>;
    execFileSync(NODE, ['-e', SYNC_ALL], { env: honest });
  };
  return {
    env,
    adopt,
    cut() {
      const key = keyOf(root);
      for (const name of readdirSync(root)) rmSync(path.join(root, name), { recursive: true });
      restore(images, key, root);
      adopt();
    },
  };
}

/** Returns the name that the library gives to the images of a file or directory. */
function keyOf(place: string): string {
  const { ino, birthtimeNs } = statSync(place, { bigint: true });
  return `${ino}-${birthtimeNs}`;
}

function restore(images: string, key: string, directory: string): void {
  const names = path.join(images, `names-${key}`);
  if (!existsSync(names)) return;
  for (const line of readFileSync(names, 'utf8').split('\n')) {
    const [, type, entry = '', mode = '', uid, gid, name] =
      /^([df]) (\S+) (\d+) (\d+) (\d+) (.+)$/.exec(line) ?? [];
    if (name === undefined) continue;
    const place = path.join(directory, name);
    const image = path.join(images, `data-${entry}`);
    let owner = { mode: Number.parseInt(mode, 8), uid: Number(uid), gid: Number(gid) };
    if (type === 'd') {
      mkdirSync(place);
    } else if (existsSync(image)) {
      copyFileSync(image, place);
      owner = statSync(image);
    } else {
      writeFileSync(place, '');
    }
    chownSync(place, owner.uid, owner.gid);
    chmodSync(place, owner.mode & 0o7777);
    if (type === 'd') restore(images, entry, place);
  }
}
