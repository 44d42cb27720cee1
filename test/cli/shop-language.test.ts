import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openWorkplace, type Workplace } from '../support/workplace.ts';
import { commandsAt } from './invoke.ts';

/** Words that occur in English sentences and in no Spanish one. */
const ENGLISH = /\b(the|is|are|was|with|and|not|yet|this|that|its|by|of)\b/i;

let place: Workplace;
let stdout: Record<'status' | 'doctor', string>;
let unstarted: string;

beforeAll(async () => {
  place = await openWorkplace(5);
  Object.assign(place.env, {
    TILLSYNC_SHOP_LANGUAGE: 'es',
    TILLSYNC_SHOP_NAME: 'Local Centro',
    TILLSYNC_ORDERS_TIMEZONE: 'America/Santiago',
    TILLSYNC_ALARMS_COMMAND: '["/bin/false"]',
  });
  const { run } = commandsAt(place);
  unstarted = (await run(['status'])).stderr;
  expect((await run(['sync', 'orders'])).code).toBe(0);
  expect((await run(['sync', 'products'])).code).toBe(0);
  stdout = { status: (await run(['status'])).stdout, doctor: (await run(['doctor'])).stdout };
});

afterAll(() => place.close());

/** Removes paths and commands, which are not translated. */
const words = (text: string) => text.replaceAll(/\S*[/-]\S*/g, '');

describe('a shop that speaks Spanish', () => {
  it('gets the status in Spanish', () => {
    expect(words(stdout.status)).not.toMatch(ENGLISH);
    expect(stdout.status).toMatch(
      /^Local Centro\nSe requiere atención ahora: tillsync no está en marcha\. No llegan pedidos ni se envían cambios\. Para iniciarlo, ejecute: /,
    );
    expect(stdout.status).toMatch(/^pedidos por consulta: +bien; resultó /m);
  });

  it('is told in Spanish that there is nothing yet to tell of', () => {
    expect(unstarted).toMatch(/^tillsync: Todavía no hay espejo en \S+\.\nPrimero inicie tillsync \(/);
  });

  it('gets what doctor found in Spanish', () => {
    expect(words(stdout.doctor)).not.toMatch(ENGLISH);
    expect(stdout.doctor).toMatch(/^FALLA Servicio +tillsync no está en marcha\./m);
    expect(stdout.doctor).toMatch(/^bien {2}Archivos y permisos +Dueños y permisos de /m);
    expect(stdout.doctor).toMatch(/\n\n1 mal, .* en orden, .* sin revisar\. Empiece por: Servicio\.\n$/);
  });

  it('gets in Spanish whether alarms arrive', async () => {
    expect(await commandsAt(place).run(['alarms', 'test'])).toMatchObject({
      stdout: 'FALLÓ   el comando false: El comando de alarmas terminó con 1.\n',
      stderr:
        'tillsync no está en marcha, así que la envió este comando, con los permisos de este usuario.\n',
    });
  });

  it('gives programs what they know', async () => {
    const { json } = commandsAt(place);
    const { document: status } = await json(['status']);
    expect(status.verdict.findings[0]).toMatchObject({
      code: 'service.down',
      message: 'tillsync is not running. No orders arrive and no changes are sent.',
    });
    const { document: doctor } = await json(['doctor', '--only', 'service']);
    expect(doctor.checks[0]).toMatchObject({ id: 'service', title: 'Service', level: 'fail' });
    expect(doctor.summary).toContain('Begin with: Service.');
    const { document: test } = await json(['alarms', 'test']);
    expect(test.results[0].message).toBe('The alarm command ended with 1.');
  });
});
