import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, statSync } from 'node:fs';
import path from 'node:path';
import { chromium } from 'playwright-core';
import { thisTarget } from '../../config/package/target.ts';
import { pageLink } from '../../src/config/key-file.ts';
import { silentLog } from '../../src/core/log.ts';
import { systemClock } from '../../src/core/system-clock.ts';
import { startDaemon } from '../../src/daemon/daemon.ts';
import { API_KEY } from '../support/api-key.ts';
import { seededRandom } from '../support/fake-clock.ts';
import { openWorkplace, ROOT, SECRET } from '../support/workplace.ts';
import { type BenchOptions, type BenchResult, leftOut } from './bench-result.ts';
import { has } from './http-load.ts';

const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium';
const MEBIBYTE = 2 ** 20;

export const expectedSeconds = { quick: 10, full: 10 };

/** Measures the bytes that the page transfers until its first paint, and the size of the package without Node. */
export async function run(options: BenchOptions): Promise<BenchResult[]> {
  return [await measureFirstPaint(options), measurePackage(options)];
}

async function measureFirstPaint({ progress }: BenchOptions): Promise<BenchResult> {
  const result = { name: "the page's first paint, in kB", bound: '<= 100' };
  if (!existsSync(CHROMIUM)) return { ...result, ...leftOut('chromium') };
  progress('the page in Chromium');
  const place = await openWorkplace(7);
  const { config, refreshToken } = place;
  const secrets = { refreshToken, webhookSecrets: [SECRET], localApiKey: API_KEY };
  const parts = { config, secrets, clock: systemClock, random: seededRandom(1), log: silentLog };
  const daemon = await startDaemon(parts);
  try {
    const bytes = await bytesUntilPainted(pageLink(daemon.localUrl, API_KEY));
    const detail = `${bytes} bytes over the wire until the page shows its verdict`;
    return { ...result, ratio: bytes / 1000, detail };
  } finally {
    await daemon.stop();
    await place.close();
  }
}

async function bytesUntilPainted(url: string): Promise<number> {
  const args = ['--headless', '--no-sandbox', '--disable-gpu', '--disable-background-networking'];
  const browser = await chromium.launch({ executablePath: CHROMIUM, args });
  try {
    const page = await (await browser.newContext({ locale: 'en-US' })).newPage();
    const wire = await page.context().newCDPSession(page);
    await wire.send('Network.enable');
    let bytes = 0;
    wire.on('Network.dataReceived', ({ encodedDataLength }) => {
      bytes += encodedDataLength;
    });
    await page.goto(url);
    await page.locator('.verdict').waitFor();
    return bytes;
  } finally {
    await browser.close();
  }
}

/** Measures everything of the package except Node, packed as in a release. */
function measurePackage({ progress }: BenchOptions): BenchResult {
  const result = { name: 'the package beyond its Node, in MiB', bound: '<= 15' };
  const dist = path.join(ROOT, 'dist');
  const newest = (existsSync(dist) ? readdirSync(dist) : [])
    .filter((name) => name.endsWith(`_${thisTarget().debian}.deb`))
    .map((name) => ({ name, ...pick(statSync(path.join(dist, name))) }))
    .sort((a, b) => b.mtimeMs - a.mtimeMs)[0];
  if (!newest) return { ...result, ratio: null, detail: 'left out: no dist/*.deb (npm run package)' };
  if (!has('xz')) return { ...result, ...leftOut('xz', 'xz-utils') };
  progress('packing what is in the package, but for its Node');
  const rest = 'dpkg-deb --fsys-tarfile "$0" | tar --delete ./usr/lib/tillsync/node | xz -T1 | wc -c';
  const bytes = Number(execFileSync('sh', ['-ec', rest, path.join(dist, newest.name)], { encoding: 'utf8' }));
  if (bytes === 0) throw new Error(`${newest.name} cannot be read.`);
  return {
    ...result,
    ratio: bytes / MEBIBYTE,
    detail: `of ${newest.name}, by xz; the whole has ${(newest.size / MEBIBYTE).toFixed(1)} MiB`,
  };
}

const pick = ({ size, mtimeMs }: { size: number; mtimeMs: number }) => ({ size, mtimeMs });
