import { globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { inSpanish, SPANISH_TEXTS } from '../../src/health/speech.ts';
import { readChange } from '../../src/outbox/intake/change.ts';
import { sentencesOf } from './sentences.ts';

const ROOT = path.resolve(import.meta.dirname, '../..');

/**
 * Source files of the texts that the page shows as a finding's detail, beside a flow, or beside a change that needs a
 * person.
 */
const TOLD_ON_THE_PAGE = [
  'src/platform/*.ts',
  'src/catalog/sweep.ts',
  'src/orders/{webhook-registration,order-poll,order-loop,group-commit,callback-route,callback-log,order-reader,answer-import}.ts',
  'src/outbox/!(csv|change-file|full-inventory-plan).ts',
  'src/health/{explain,looks,notifier,retention}.ts',
  'src/hooks/hook-loop.ts',
  'src/db/wal.ts',
  'src/core/json-records.ts',
  'src/link/{hub,hub-feed,branch,branch-status,branch-download,branch-upload,nats,server-file,server-look}.ts',
  'src/daemon/{incoming,outgoing,link-loops,alarm-loop}.ts',
  'src/app/services.ts',
  'src/support/restored-mirror.ts',
];

/** Texts of the files above that are shown only in a terminal, in a log, or to a receiver of alarms. */
const NOT_ON_THE_PAGE = new Set([
  'To make them one: systemctl daemon-reload, then restart the socket unit and the service.',
  'The certificate or its key cannot be read.',
  '{1} notifications already wait for the disk; this one was not kept.',
  '{1} was made by a newer tillsync; it was left untouched.',
  '{1} has {2} bytes; no more than {3} are taken.',
  '{1} is damaged: {2}.',
  'What answers at {1} is no nats-server.',
  'Nothing answers at {1} ({2}).',
  'The mirror has no counts.',
  'The order feed would give numbers a second time.',
  // Texts of `status` and `doctor`; the page has its own words for these.
  'Branch {1}: orders that are not booked are kept back of counts.',
  'Branch {1}: counts are sent as they are.',
  'Branch {1}: counts are sent as they are, since {2}.',
]);

function places(text: string): string[] {
  return [...text.matchAll(/\{\w+\}/g)].map(([place]) => place).sort();
}

describe('the reasons that the page shows', () => {
  const known = new Set(Object.keys(SPANISH_TEXTS));
  const files = TOLD_ON_THE_PAGE.flatMap((glob) => globSync(glob, { cwd: ROOT })).sort();

  it.each(files)('are all known in Spanish: %s', (file) => {
    expect(
      sentencesOf(path.join(ROOT, file)).filter(
        (sentence) => !known.has(sentence) && !NOT_ON_THE_PAGE.has(sentence),
      ),
    ).toEqual([]);
  });

  it('fill in only what the English has', () => {
    for (const [english, spanish] of Object.entries(SPANISH_TEXTS)) {
      expect(places(english), english).toEqual(expect.arrayContaining(places(spanish)));
    }
  });

  it('are told with what is filled in, sentence by sentence, a reason within a reason too', () => {
    expect(inSpanish('The platform knows no product with externalId NOPE.')).toBe(
      'La plataforma no conoce ningún producto con externalId NOPE.',
    );
    expect(
      inSpanish('Not known to have arrived (The platform failed with HTTP 500.); it is sent again.'),
    ).toBe('No se sabe si llegó (La plataforma falló (HTTP 500).); se envía otra vez.');
    expect(inSpanish('Released by a person. Replaced by change 12.')).toBe(
      'Aprobado por una persona. Reemplazado por el cambio 12.',
    );
  });

  it('stand in the daemon still', () => {
    const daemon = globSync('src/**/*.ts', { cwd: ROOT })
      .filter((file) => !file.startsWith(`src${path.sep}page`))
      .map((file) => readFileSync(path.join(ROOT, file), 'utf8'))
      .join('\n')
      .replaceAll('\\`', '`');
    for (const [english] of Object.entries(SPANISH_TEXTS)) {
      // The reader puts the column's name before the schema's message: `name` + `is empty`.
      const sentence = english.replace(/^name (?=is empty)/, '');
      const parts = sentence.split(/\{\w+\}/).map((part) => part.replace(/^[^a-z]+|[^a-z]+$/gi, ''));
      for (const part of parts) expect(daemon.includes(part), `${part}, of: ${english}`).toBe(true);
    }
  });

  it('name what the platform could not be reached for', () => {
    expect(inSpanish('Cannot reach the platform: the name api.example.com was not found (EAI_AGAIN).')).toBe(
      'No se puede conectar con la plataforma: no se encontró el nombre api.example.com (EAI_AGAIN).',
    );
  });

  it('stay as they came where they are words of the platform', () => {
    expect(inSpanish('Subsidiary not found')).toBeUndefined();
    expect(inSpanish('Released by a person. Something else.')).toBeUndefined();
    expect(inSpanish('')).toBeUndefined();
  });

  it('tell every fault of a change', () => {
    const id = { externalId: 'A' };
    const faults = [
      ...[
        {},
        id,
        { ...id, qty: -1e300 },
        { ...id, qty: 'x' },
        { ...id, qty: 1e300 },
        { ...id, show: true },
        7,
      ],
      ...[
        { externalId: '', qty: 1 },
        { externalId: 5, qty: 1 },
        { sku: 'x', qty: 1 },
        { ...id, qty: null },
      ],
      ...[
        { ...id, qty: 1, colour: 'red' },
        { ...id, qty: 1, show: 'maybe' },
      ],
    ].map((value) => readChange('stock', value));
    const more = [{ ...id, name: '' }, { ...id, name: 'a\0b' }, { ...id, price: true }, id].map((value) =>
      readChange('product', value),
    );
    for (const reading of [...faults, ...more]) {
      expect(reading).toHaveProperty('fault');
      const { message } = (reading as { fault: { message: string } }).fault;
      expect(inSpanish(message), message).toBeDefined();
    }
  });
});
