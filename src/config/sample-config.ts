import { readFileSync } from 'node:fs';
import { TillsyncError } from '../domain/errors.ts';

/** The base address that stands in the sample; nobody's platform. */
export const SAMPLE_BASE_URL = 'https://api.example.com';

/** Whether the platform of this store was ever named. Until then nobody is called. */
export function isSetUp({ platform }: { platform: { baseUrl: string } }): boolean {
  return platform.baseUrl !== SAMPLE_BASE_URL;
}

export function notSetUp(): TillsyncError {
  return new TillsyncError('config-invalid', 'tillsync is not set up yet.', { hint: 'Run: {tillsync} init' });
}

/** The commented sample of the file, from which a set-up makes the first configuration. */
export function sampleConfig(): string {
  return readFileSync(new URL('../../config/tillsync.sample.toml', import.meta.url), 'utf8');
}
