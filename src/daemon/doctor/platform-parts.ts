import type { Config } from '../../config/config-type.ts';
import type { Secrets } from '../../config/secrets.ts';
import { silentLog } from '../../domain/log.ts';
import type { Clock, Random } from '../../domain/time/clock.ts';
import { createHttpTransport } from '../../platform/http-transport.ts';
import { serverDateMs } from '../../platform/server-date.ts';
import type { Transport } from '../../platform/transport.ts';
import { openParts, type Parts } from '../parts.ts';

export interface PlatformPartsOptions {
  config: Config;
  secrets: Secrets;
  clock: Clock;
  random: Random;
}

/** The daemon's own parts, so that the same budget and token pair hold, and the time that the platform told. */
export interface PlatformParts {
  parts: Parts;
  /** The platform's wall clock minus ours by its last answer; null: it has told none. */
  skewMs(): number | null;
}

export async function openPlatformParts(options: PlatformPartsOptions): Promise<PlatformParts> {
  const { config, clock } = options;
  let skewMs: number | null = null;
  const transport = overheard(
    createHttpTransport({ baseUrl: config.platform.baseUrl, clock }),
    (serverNowMs) => {
      skewMs = serverNowMs - clock.nowMs();
    },
  );
  return { parts: await openParts({ ...options, log: silentLog, transport }), skewMs: () => skewMs };
}

function overheard(transport: Transport, onDate: (serverNowMs: number) => void): Transport {
  return {
    async send(request) {
      const answer = await transport.send(request);
      const dateMs = serverDateMs(answer.headers);
      if (dateMs !== undefined) onDate(dateMs);
      return answer;
    },
    close: () => transport.close(),
  };
}
