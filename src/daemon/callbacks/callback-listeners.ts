import { TillsyncError } from '../../domain/errors.ts';
import type { Log } from '../../domain/log.ts';
import type { Receiver } from '../../receiver/receiver.ts';

export interface CallbackListenersOptions {
  /** The receiver on this open socket, or on the configured address. */
  receiver: (listenFd: number | undefined) => Receiver;
  /** The socket that systemd holds open over restarts. */
  inheritedFd: number | undefined;
  /** Where the configuration wants callbacks. */
  host: string;
  port: number;
  log: Log;
}

export interface CallbackListeners {
  url: string;
  close(): Promise<void>;
}

const REMEDY = 'To make them one: systemctl daemon-reload, then restart the socket unit and the service.';

/**
 * Listens on the socket that was handed over, and on the configured address when that is another: the address in
 * the configuration always works, and nothing that still goes to the old one is lost. Throws `config-invalid`.
 */
export async function listenForCallbacks(options: CallbackListenersOptions): Promise<CallbackListeners> {
  const { inheritedFd, host, port, log } = options;
  if (inheritedFd === undefined) return only(options.receiver(undefined));
  const inherited = options.receiver(inheritedFd);
  const found = await inherited.listen();
  const isSame = port === 0 || (found.port === port && isSameHost(found.host, host));
  if (isSame) return { url: found.url, close: () => inherited.close() };
  const configured = options.receiver(undefined);
  try {
    const { url } = await configured.listen();
    log.warn(
      { socket: found.host, url },
      `The socket unit listens elsewhere than webhook.listen says. ${REMEDY}`,
    );
    return {
      url,
      close: async () => {
        await Promise.all([inherited.close(), configured.close()]);
      },
    };
  } catch (error) {
    if (!(error instanceof TillsyncError)) throw error;
    log.warn(
      { socket: found.host, err: error },
      `Callbacks arrive only where the socket unit listens, not where webhook.listen says. ${REMEDY}`,
    );
    return { url: found.url, close: () => inherited.close() };
  }
}

async function only(receiver: Receiver): Promise<CallbackListeners> {
  const { url } = await receiver.listen();
  return { url, close: () => receiver.close() };
}

function isSameHost(found: string, configured: string): boolean {
  if (configured === 'localhost') return found === '127.0.0.1' || found === '::1';
  return found === configured;
}
