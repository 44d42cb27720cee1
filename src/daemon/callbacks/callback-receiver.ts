import { readFileSync } from 'node:fs';
import type { Config } from '../../config/config-type.ts';
import { TillsyncError } from '../../domain/errors.ts';
import { readSentOrder } from '../../domain/order/order-reader.ts';
import { compileSpellings } from '../../domain/order/spelling-tree.ts';
import { createReceiver, type Receiver, type ReceiverOptions } from '../../receiver/receiver.ts';
import type { IncomingOrders } from '../incoming-orders.ts';
import type { Parts, PartsOptions } from '../parts.ts';

/** The receiver of callbacks on what the daemon has open. Throws `config-invalid` for TLS files it cannot read. */
export function callbackReceiver(
  { config, clock, log }: PartsOptions,
  parts: Parts,
  orders: IncomingOrders,
  more: Pick<ReceiverOptions, 'listenFd' | 'onAnswered' | 'onDropped'>,
): Receiver {
  const { mirror, webhookSecrets } = parts;
  const { host, port, path, bodyLimitBytes } = config.webhook;
  const spellings = compileSpellings(config.orders.fields);
  return createReceiver({
    host,
    port,
    path,
    bodyLimitBytes,
    secrets: () => webhookSecrets.accepted(),
    keeper: mirror.keeper,
    read: (value, raw) => readSentOrder(value, raw, spellings),
    clock,
    log,
    tls: tlsFiles(config),
    ...more,
    onKept(kept) {
      orders.changes.notify();
      orders.standing.kept();
      for (const { entry, outcome } of kept) {
        if (entry.kind === 'order') orders.watch.announced(entry.observation.reading.orderId);
        // What the webhook cannot settle, a poll can.
        if (outcome === 'held') orders.wake();
      }
    },
    onPutOff: (error) => orders.standing.putOff(error),
    onUnreadable: (reason) => orders.standing.unreadable(reason),
  });
}

function tlsFiles(config: Config): { cert: string; key: string } | undefined {
  const { tlsCertFile, tlsKeyFile } = config.webhook;
  if (tlsCertFile === '') return undefined;
  try {
    return { cert: readFileSync(tlsCertFile, 'utf8'), key: readFileSync(tlsKeyFile, 'utf8') };
  } catch (cause) {
    throw new TillsyncError('config-invalid', 'The certificate or its key cannot be read.', {
      cause,
      hint: 'Check webhook.tls_cert_file and webhook.tls_key_file, and that the user of tillsync may read them.',
    });
  }
}
