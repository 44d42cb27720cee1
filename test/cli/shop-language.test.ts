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
  place.sandbox.control.createOrder({ status: 'payment-approved' });
  expect((await run(['sync', 'orders'])).code).toBe(0);
  expect((await run(['sync', 'catalog'])).code).toBe(0);
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
    expect(await commandsAt(place).run(['config', 'test-alarms'])).toMatchObject({
      stdout: 'FALLÓ   el comando false: El comando de alarmas terminó con 1.\n',
      stderr:
        'tillsync no está en marcha, así que la envió este comando, con los permisos de este usuario.\n',
    });
  });

  it('gets in Spanish why an order and a stock are as they are', async () => {
    const { run, json } = commandsAt(place);
    const { document } = await json(['order', 'list']);
    const { orderId, code } = document.orders[0];
    expect((await run(['order', 'ack', orderId])).code).toBe(0);
    const { stdout: order } = await run(['order', 'explain', String(code)]);
    expect(order).toMatch(
      /^HORA \(America\/Santiago\) +QUÉ\n.* Avisado por una consulta: payment-approved; evento 1\.\n/,
    );
    expect(order).toMatch(/ Confirmado por el POS de la tienda /);
    expect(words(order)).not.toMatch(ENGLISH);

    const count = ['stock', 'set', '--external-id', 'A-1001-1', '--branch', 'sub-1', '--qty', '3', '--wait'];
    expect((await run(count)).code).toBe(0);
    const { stdout: stock } = await run(['stock', 'explain', '1001']);
    expect(stock).toMatch(/^sku 1001 en sub-1\nHORA /);
    expect(words(stock)).not.toMatch(ENGLISH);

    expect(await run(['order', 'explain', '999999'])).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(
        /^tillsync: El espejo no tiene ningún pedido "999999"\. Los números más cercanos que tiene: \d+\.\nVea los que tiene con: /,
      ),
    });
    expect((await run(['stock', 'explain', '99'])).stderr).toMatch(
      /^tillsync: El espejo no tiene stock del sku 99\.\nVea los sku de un producto con: /,
    );
    const { entries } = (await json(['order', 'explain', orderId])).document;
    expect(entries[0].what).toMatch(/^Heard by a poll: /);
  });

  it('gets in Spanish what the mirror has differently', async () => {
    const { run, json } = commandsAt(place);
    const { control } = place.sandbox;
    const [product] = control.products();
    if (!product) throw new Error('The sandbox has no products.');
    control.putProduct({ ...product, name: 'Renamed' });
    const { code, stdout, stderr } = await run(['sync', 'diff']);
    expect(code).toBe(1);
    expect(stdout).toMatch(
      /^Stocks contados: [01]; diferencias: 0\.\nProductos: \d+; diferencias: [1-9]\d*\.\n/,
    );
    expect(stdout).toMatch(/^PRODUCTO +SKU +SUCURSAL +QUÉ +ESPEJO +PLATAFORMA\n/m);
    expect(stdout).toMatch(/^Pedidos del \S+ al \S+: 1; diferencias: 0\.$/m);
    expect(words(stdout.replaceAll(/^\S.* name .*$/gm, ''))).not.toMatch(ENGLISH);
    expect(stderr).toContain('pidiendo a la plataforma los productos de sub-1');
    expect(words(stderr)).not.toMatch(ENGLISH);
    const { document } = await json(['sync', 'diff', 'products']);
    expect(document.products.differences).toContainEqual(
      expect.objectContaining({ field: 'name', platform: 'Renamed' }),
    );
    control.putProduct(product);
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
    const { document: test } = await json(['config', 'test-alarms']);
    expect(test.results[0].message).toBe('The alarm command ended with 1.');
  });
});
