/* Resizing, colour conversion, normalisation, layout and data type of a camera image in one pass.

   Operation by operation as models/camera_image.py: every channel is resized, then NV12 is converted to R, G, B. */

FUNCTION float channel_at(const GLOBAL u8 *image, int channel, int y, int x)
{
#if FORMAT == 0 /* RGB planes */
    return image[(channel * HEIGHT + y) * WIDTH + x];
#elif FORMAT == 1 /* BGR pixels */
    return image[(y * WIDTH + x) * 3 + 2 - channel];
#else /* NV12: luma, then interleaved chroma at half the resolution */
    return channel == 0 ? image[y * WIDTH + x] : image[(HEIGHT + y / 2) * WIDTH + x / 2 * 2 + channel - 1];
#endif
}

FUNCTION float colour(float value)
{
    value = value > 0 ? value : 0;
    return value < 255 ? value : 255;
}

KERNEL camera_input(const GLOBAL u8 *image, const GLOBAL int *taps, const GLOBAL float *weights, GLOBAL MAP *input)
{
    int pixel = GROUP * ITEMS + ITEM;
    if (pixel >= INPUT_HEIGHT * INPUT_WIDTH)
        return;
    int row = pixel / INPUT_WIDTH - TOP, column = pixel % INPUT_WIDTH - LEFT;
    int inside = row >= 0 && row < INNER_HEIGHT && column >= 0 && column < INNER_WIDTH;
    float values[3];
    const float gain[3] = {GAIN}, bias[3] = {BIAS}, padding[3] = {PADDING};
    if (inside) {
        int top = taps[2 * row], bottom = taps[2 * row + 1];
        int left = taps[2 * (INNER_HEIGHT + column)], right = taps[2 * (INNER_HEIGHT + column) + 1];
        float down = weights[row], across = weights[INNER_HEIGHT + column];
        for (int c = 0; c < 3; c++) {
            float above = channel_at(image, c, top, left), below = channel_at(image, c, bottom, left);
            above += (channel_at(image, c, top, right) - above) * across;
            below += (channel_at(image, c, bottom, right) - below) * across;
            values[c] = above + (below - above) * down;
        }
#if FORMAT == 2
        float luma = values[0] - 16, u = values[1] - 128, v = values[2] - 128;
        luma = (luma > 0 ? luma : 0) * LUMA;
        values[0] = colour(luma + v * RED_V);
        values[1] = colour(luma + u * GREEN_U + v * GREEN_V);
        values[2] = colour(luma + u * BLUE_U);
#endif
    }
    for (int c = 0; c < 3; c++) {
        float value = inside ? values[c] * gain[c] - bias[c] : padding[c];
        STORE_MAP(input, NHWC ? pixel * 3 + c : c * INPUT_HEIGHT * INPUT_WIDTH + pixel, value);
    }
}
