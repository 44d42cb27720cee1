import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { type Browser, type BrowserContextOptions, chromium, type Page } from 'playwright-core';
import { pageLink } from '../../../src/config/key-file.ts';
import { silentLog } from '../../../src/core/log.ts';
import { systemClock } from '../../../src/core/system-clock.ts';
import { type Daemon, startDaemon } from '../../../src/daemon/daemon.ts';
import { InProcessServer } from '../../link/in-process.ts';
import { API_KEY } from '../../support/api-key.ts';
import { seededRandom } from '../../support/fake-clock.ts';
import { limitMs } from '../../support/shared-config.ts';
import { MAIN, NODE, openWorkplace, SECRET, type Workplace } from '../../support/workplace.ts';

export const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium';
export const hasChromium = existsSync(CHROMIUM);

const FLAGS = [
  '--headless',
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  // shop.test is not a name of this machine, so the daemon serves the page as it does to another machine.
  '--host-resolver-rules=MAP shop.test 127.0.0.1',
];

export function launchBrowser(): Promise<Browser> {
  return chromium.launch({ executablePath: CHROMIUM, args: FLAGS });
}

/** A store with its daemon in this process, and a sandbox. */
export interface PageStore {
  place: Workplace;
  daemon: Daemon;
  url: string;
  post(path: string, body: unknown): Promise<void>;
  /** Hands in tokens as a person does. */
  handOverTokens(): Promise<void>;
  restart(): Promise<void>;
  stop(): Promise<void>;
  close(): Promise<void>;
}

export interface PageStoreOptions {
  /** Main API key. If it is left out, `url` has that of all tests, so that the page does not ask for it. */
  localApiKey?: string;
  host?: string;
  accessTokenLifetimeMs?: number;
  /** Name of the shop. */
  name?: string;
  currency?: string;
  /** Names of branches with their own tillsync; the store is then their hub. */
  branches?: readonly string[];
  /** Name of the branch that the store is; the branch's hub does not run. */
  branch?: string;
}

export async function openStore(options: PageStoreOptions = {}): Promise<PageStore> {
  const { localApiKey = API_KEY, host, accessTokenLifetimeMs, name, currency, branches, branch } = options;
  const place = await openWorkplace(7, accessTokenLifetimeMs === undefined ? {} : { accessTokenLifetimeMs });
  const { refreshToken } = place;
  const { hub, local } = place.config;
  const config = {
    ...place.config,
    local: { ...local, host: host ?? local.host },
    shop: { name: name ?? '', currency: currency ?? '', language: 'en' as const },
    ...(branches && {
      hub: { ...hub, nats: 'nats://127.0.0.1:4222' },
      branches: branches.map((externalId) => ({ externalId })),
    }),
  };
  if (branch !== undefined)
    Object.assign(config, { link: { hub: 'nats://127.0.0.1:4222', otherHubs: [], branch, caFile: '' } });
  // An in-process server stands in for nats-server, so that the tests do not need a running one.
  const server = new InProcessServer();
  const link = { ...(branches && { hub: server.hub() }), ...(branch && { branch: server.branch(branch) }) };
  const localUrl = `http://127.0.0.1:${local.port}`;
  const secrets = {
    refreshToken,
    webhookSecrets: [SECRET],
    localApiKey,
  };
  const start = () =>
    startDaemon({
      config,
      secrets,
      clock: systemClock,
      random: seededRandom(1),
      log: silentLog,
      link,
    });
  let daemon: Daemon | undefined = await start();
  return {
    place,
    get daemon() {
      if (!daemon) throw new Error('the daemon is stopped');
      return daemon;
    },
    url: options.localApiKey === undefined ? pageLink(localUrl, API_KEY) : localUrl,
    async post(path, body) {
      const answer = await fetch(`http://127.0.0.1:${local.port}/v1${path}`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', connection: 'close' },
        body: JSON.stringify(body),
      });
      if (!answer.ok) throw new Error(await answer.text());
    },
    async handOverTokens() {
      const child = spawn(NODE, [MAIN, 'auth', 'set'], {
        env: place.env,
        stdio: ['pipe', 'ignore', 'inherit'],
      });
      child.stdin.end(place.sandbox.issueTokens().refreshToken);
      await once(child, 'close');
      if (child.exitCode !== 0) throw new Error('the tokens were not taken');
    },
    async restart() {
      daemon ??= await start();
    },
    async stop() {
      await daemon?.stop();
      daemon = undefined;
    },
    async close() {
      await daemon?.stop();
      await place.close();
    },
  };
}

export interface OpenedPage {
  page: Page;
  /** Errors and warnings that the browser reported, such as of scripts, refused content and failed requests. */
  complaints: string[];
  /** Addresses that the page requested. */
  asked: string[];
  /** Bytes transferred before the page had painted its verdict. */
  firstPaintBytes: number;
  close(): Promise<void>;
}

/** Opens an address in a new browser profile. Waits for the page's verdict, unless `isShown` is false. */
export async function openPage(
  browser: Browser,
  url: string,
  options: BrowserContextOptions = {},
  isShown = true,
): Promise<OpenedPage> {
  const context = await browser.newContext({ locale: 'en-US', ...options });
  // Playwright's limit is for an idle machine.
  context.setDefaultTimeout(limitMs(30_000));
  const page = await context.newPage();
  const complaints: string[] = [];
  const asked: string[] = [];
  page.on('console', (message) => {
    if (message.type() === 'error' || message.type() === 'warning') complaints.push(message.text());
  });
  page.on('pageerror', (error) => complaints.push(error.message));
  page.on('request', (request) => asked.push(request.url()));
  const wire = await context.newCDPSession(page);
  await wire.send('Network.enable');
  let bytes = 0;
  wire.on('Network.dataReceived', ({ encodedDataLength }) => {
    bytes += encodedDataLength;
  });
  await page.goto(url);
  if (isShown) await page.locator('.verdict').waitFor();
  return { page, complaints, asked, firstPaintBytes: bytes, close: () => context.close() };
}
