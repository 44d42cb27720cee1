import { readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import { shippedNode, thisTarget } from '../../config/package/target.ts';

const ROOT = path.resolve(import.meta.dirname, '../..');

interface Lock {
  packages: Record<string, { version?: string; integrity?: string; hasInstallScript?: boolean }>;
}

it('locks every package by its hash, Node for both architectures among them', () => {
  const { packages } = JSON.parse(readFileSync(path.join(ROOT, 'package-lock.json'), 'utf8')) as Lock;
  const unlocked = Object.entries(packages).filter(([place, { integrity }]) => place !== '' && !integrity);
  expect(unlocked).toEqual([]);
  const versions = ['x64', 'arm64'].map((cpu) => packages[`node_modules/node-linux-${cpu}`]?.version);
  expect(new Set(versions)).toEqual(new Set([process.versions.node]));
});

it('ships the Node that runs these tests, unchanged', { tags: ['bulk'] }, () => {
  expect(Buffer.compare(shippedNode(ROOT, thisTarget()), readFileSync(process.execPath))).toBe(0);
});
