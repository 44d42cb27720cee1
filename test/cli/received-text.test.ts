import { expect, test } from 'vitest';
import { type Cli, writeJson } from '../../src/cli/cli.ts';
import { receivedResult } from '../../src/cli/received.ts';

function written(payload: string | Uint8Array, options: { payload?: boolean; json?: boolean }): Buffer {
  const parts: Buffer[] = [];
  const cli = { stdout: { write: (part: string | Uint8Array) => void parts.push(Buffer.from(part)) } } as Cli;
  const { json, text } = receivedResult({ cli, options, argument: '' }, { payload }, { id: '7' });
  if (options.json) writeJson(cli, json);
  else if (typeof text === 'function') cli.stdout.write(text());
  return Buffer.concat(parts);
}

test('bytes that are no text come out exactly as they came in', () => {
  const bytes = Buffer.from([0x7b, 0xff, 0x00, 0xfe, 0x7d]);
  expect(written(bytes, { payload: true })).toEqual(bytes);
  expect(JSON.parse(String(written(bytes, { json: true })))).toEqual({
    payloadBase64: bytes.toString('base64'),
  });
  expect(String(written(bytes, {}))).toContain('id');
});
