import { Agent, type Dispatcher, getGlobalDispatcher, setGlobalDispatcher } from 'undici';

/** Main API key of the daemons and APIs that tests start. */
export const API_KEY = 'the-key-of-all-tests';

const ASKS_FOR_KEY = /^\/(v1\/|metrics\b|healthz\b|readyz\b)/;
const HOSTS = /^(127\..*|localhost)$/;
const SENT = Symbol.for('tillsync.test.sends-key');

/** Adds the tests' API key to requests for the local API that have none, as a till sends it. */
export const sendingKey: Dispatcher.DispatcherComposeInterceptor = (dispatch) => (options, handler) => {
  const { hostname } = new URL(String(options.origin));
  if (!HOSTS.test(hostname) || !ASKS_FOR_KEY.test(options.path)) return dispatch(options, handler);
  const headers = pairs(options.headers);
  if (headers.some(([name]) => /^(x-api-key|authorization)$/i.test(name))) return dispatch(options, handler);
  return dispatch({ ...options, headers: [...headers, ['x-api-key', API_KEY]].flat() as string[] }, handler);
};

function pairs(headers: Dispatcher.DispatchOptions['headers']): [string, string | string[]][] {
  if (!headers) return [];
  if (Array.isArray(headers) && typeof headers[0] === 'string') {
    const flat = headers as string[];
    return flat.flatMap((name, at): [string, string][] => (at % 2 === 0 ? [[name, flat[at + 1] ?? '']] : []));
  }
  const all =
    Symbol.iterator in headers ? [...(headers as Iterable<[string, string]>)] : Object.entries(headers);
  return all.filter((pair): pair is [string, string | string[]] => pair[1] !== undefined);
}

// Lets `fetch` and undici's `request` send the key in each test that names no dispatcher of its own. The worker's
// process runs several test files.
const before = getGlobalDispatcher() as Dispatcher & { [SENT]?: true };
if (!before[SENT]) setGlobalDispatcher(Object.assign(new Agent().compose(sendingKey), { [SENT]: true }));
