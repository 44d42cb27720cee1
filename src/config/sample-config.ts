import { readFileSync } from 'node:fs';

/** The base address that stands in the sample; nobody's platform. */
export const SAMPLE_BASE_URL = 'https://api.example.com';

/** The commented sample of the file, which the package installs as the first configuration. */
export function sampleConfig(): string {
  return readFileSync(new URL('../../config/tillsync.sample.toml', import.meta.url), 'utf8');
}
