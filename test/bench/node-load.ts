import { readFileSync } from 'node:fs';
import { Agent, request } from 'node:http';

/**
 * Puts load on a receiver, for machines without wrk. Arguments: URL CONNECTIONS SECONDS SECRET ID_PREFIX keep|close
 * BODY_FILE.
 */
const [url = '', connections = '', seconds = '', secret = '', prefix = '', reuse = '', bodyFile = ''] =
  process.argv.slice(2);
const body = readFileSync(bodyFile, 'utf8');
const agent = new Agent({ keepAlive: reuse === 'keep', maxSockets: Number(connections) });
const startMs = performance.now();
const endMs = startMs + Number(seconds) * 1000;
const latenciesMs: number[] = [];
let sent = 0;
let failed = 0;

await Promise.all(Array.from({ length: Number(connections) }, client));
agent.destroy();
latenciesMs.sort((a, b) => a - b);
const at = (share: number) => latenciesMs[Math.floor(latenciesMs.length * share)] ?? Number.NaN;
const report = {
  requestsPerSecond: (latenciesMs.length / (performance.now() - startMs)) * 1000,
  acknowledged: latenciesMs.length,
  failed,
  p50Ms: at(0.5),
  p99Ms: at(0.99),
};
process.stdout.write(JSON.stringify(report));

async function client(): Promise<void> {
  while (performance.now() < endMs) {
    const beganMs = performance.now();
    const status = await post(body.replace('ORDER_ID', `${prefix}-${++sent}`));
    if (status >= 200 && status < 300) latenciesMs.push(performance.now() - beganMs);
    else failed++;
  }
}

function post(text: string): Promise<number> {
  return new Promise((resolve) => {
    const headers = {
      'content-type': 'application/json',
      'content-length': Buffer.byteLength(text),
      'x-webhook-secret': secret,
    };
    const call = request(url, { method: 'POST', agent, headers }, (response) => {
      response.resume().on('end', () => resolve(response.statusCode ?? 0));
    });
    call.on('error', () => resolve(0));
    call.end(text);
  });
}
