import type { IncomingMessage } from 'node:http';

/** `cut-off`: the connection ended before the body did; nobody is left to answer. */
export type RequestBody = Buffer | 'too-large' | 'cut-off';

/**
 * Reads a body of at most `limitBytes` as it came. One that is announced or turns out larger is `too-large` at
 * once; the rest of it is then let go by as it arrives, without being kept.
 */
export function readRequestBody(request: IncomingMessage, limitBytes: number): Promise<RequestBody> {
  const announced = Number(request.headers['content-length']);
  if (announced > limitBytes) return Promise.resolve('too-large');
  return new Promise((resolve) => {
    const chunks: Buffer[] = [];
    let bytes = 0;
    const settle = (body: RequestBody) => {
      request.off('data', onData).off('end', onEnd).off('close', onClose);
      resolve(body);
    };
    const onData = (chunk: Buffer) => {
      bytes += chunk.length;
      if (bytes > limitBytes) settle('too-large');
      else chunks.push(chunk);
    };
    const onEnd = () => settle(chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks, bytes));
    const onClose = () => settle('cut-off');
    // The error of a cut connection comes with `close`; unheard it would end the process.
    request
      .on('data', onData)
      .on('end', onEnd)
      .on('close', onClose)
      .on('error', () => {});
  });
}
